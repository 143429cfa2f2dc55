package maintenance

import (
	"maps"
	"sync"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// decided is what maintenances have decided, and when they wrote it. The controllers share
// it. It is a hint, and safe for concurrent use.
type decided struct {
	mu sync.Mutex
	// stages are those that maintenances have decided on for their nodes.
	stages map[string]map[string]v1alpha1.MaintenanceStage
	// written is when the status of a maintenance was written.
	written map[string]time.Time
}

func newDecided() *decided {
	return &decided{stages: map[string]map[string]v1alpha1.MaintenanceStage{}, written: map[string]time.Time{}}
}

// decide notes the stages that a maintenance wants for its nodes.
func (d *decided) decide(maintenance string, stages map[string]v1alpha1.MaintenanceStage) {
	stages = maps.Clone(stages)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stages[maintenance] = stages
}

// stage is what a maintenance has decided for a node; empty if it has not.
func (d *decided) stage(maintenance, node string) v1alpha1.MaintenanceStage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stages[maintenance][node]
}

// wrote notes when a status was written.
func (d *decided) wrote(maintenance string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written[maintenance] = now
}

func (d *decided) lastWrote(maintenance string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written[maintenance]
}

// forget forgets a maintenance that is gone.
func (d *decided) forget(maintenance string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.stages, maintenance)
	delete(d.written, maintenance)
}
