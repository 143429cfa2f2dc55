package maintenance

import (
	"maps"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Stages are the stages that the maintenances of a node have on it, by name.
type Stages map[string]v1alpha1.MaintenanceStage

// parseStages reads v1alpha1.MaintenancesAnnotation. What cannot be read is ignored, so
// it is written again or released.
func parseStages(annotation string) Stages {
	if annotation == "" {
		return nil
	}
	stages := Stages{}
	for item := range strings.SplitSeq(annotation, ",") {
		name, stage, ok := strings.Cut(item, "=")
		if s := v1alpha1.MaintenanceStage(stage); ok && name != "" && rank(s) > 0 {
			stages[name] = s
		}
	}
	return stages
}

// String is the annotation's value.
func (s Stages) String() string {
	items := make([]string, 0, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		items = append(items, name+"="+string(s[name]))
	}
	return strings.Join(items, ",")
}

// furthest is the most advanced stage, empty if there is none.
func (s Stages) furthest() v1alpha1.MaintenanceStage {
	var furthest v1alpha1.MaintenanceStage
	for _, stage := range s {
		if rank(stage) > rank(furthest) {
			furthest = stage
		}
	}
	return furthest
}

// cordons reports whether any of them wants the node to be unschedulable.
func (s Stages) cordons() bool { return rank(s.furthest()) >= rank(v1alpha1.StageCordon) }

// drains are the names, sorted, of those that have begun to drain the node.
func (s Stages) drains() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if rank(s[name]) >= rank(v1alpha1.StageDrain) {
			names = append(names, name)
		}
	}
	return names
}

// rank orders the stages that a node can be in; 0 for other stages.
func rank(s v1alpha1.MaintenanceStage) int {
	if s == v1alpha1.StageMaintenanceComplete {
		return 0 // The node has been given back.
	}
	return 1 + slices.Index(v1alpha1.MaintenanceStages(), s)
}
