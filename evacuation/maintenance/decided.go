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
	// waves are those that begin on their nodes.
	waves map[string]map[string]WaveBegin
	// written is when the status of a maintenance was written.
	written map[string]time.Time
}

func newDecided() *decided {
	return &decided{
		stages: map[string]map[string]v1alpha1.MaintenanceStage{}, waves: map[string]map[string]WaveBegin{}, written: map[string]time.Time{},
	}
}

// decide notes the stages that a maintenance wants for its nodes, and the waves that begin there.
func (d *decided) decide(maintenance string, stages map[string]v1alpha1.MaintenanceStage, waves map[string]WaveBegin) {
	stages, waves = maps.Clone(stages), maps.Clone(waves)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stages[maintenance], d.waves[maintenance] = stages, waves
}

// stage is what a maintenance has decided for a node; empty if it has not.
func (d *decided) stage(maintenance, node string) v1alpha1.MaintenanceStage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stages[maintenance][node]
}

// wave is the one that begins on a node; the zero value if none does.
func (d *decided) wave(maintenance, node string) WaveBegin {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waves[maintenance][node]
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
	delete(d.waves, maintenance)
	delete(d.written, maintenance)
}
