package maintenance

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// reconcileNode gathers, decides and applies for one node.
func (c *Controller) reconcileNode(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		// Without knowing all maintenances, nodes would be released.
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	// If the patch does not apply, the node is newer than the cache.
	for _, reader := range []client.Reader{c.Client, c.APIReader} {
		node := &corev1.Node{}
		if err := reader.Get(ctx, req.NamespacedName, node); apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		} else if err != nil {
			return reconcile.Result{}, fmt.Errorf("get node: %w", err)
		}
		in, err := c.gatherNode(ctx, node)
		if err != nil {
			return reconcile.Result{}, err
		}
		d := NodeStep(in)
		result := reconcile.Result{}
		if !d.WakeAt.IsZero() {
			result.RequeueAfter = d.WakeAt.Sub(in.Now)
		}
		if !d.Write {
			return result, nil
		}
		done, err := c.patchNode(ctx, node, d)
		if err != nil {
			return reconcile.Result{}, err
		}
		if done {
			if d.Restores {
				c.restored.note(node.Name, in.Now)
			}
			c.emitNode(node, in, d)
			return result, nil
		}
	}
	return reconcile.Result{}, fmt.Errorf("patch node %s: it kept changing", req.Name)
}

// gatherNode collects what is known about a node, from memory only.
func (c *Controller) gatherNode(ctx context.Context, node *corev1.Node) (NodeInput, error) {
	in := NodeInput{
		Unschedulable: node.Spec.Unschedulable,
		CordonedBy:    node.Annotations[v1alpha1.CordonAnnotation],
		Stages:        stagesOf(node),
		Phase:         v1alpha1.MaintenanceStage(node.Annotations[v1alpha1.MaintenancePhaseAnnotation]),
		Waves:         translate.BegunWavesOf(node),
		Taints:        node.Spec.Taints,
		Restored:      c.restored.last(node.Name),
		Now:           c.Clock.Now(),
	}
	list := &v1alpha1.NodeMaintenanceList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return in, fmt.Errorf("list NodeMaintenances: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		stage := c.wantedStage(m, node, in.Stages[m.Name])
		if stage == "" {
			continue
		}
		if in.Wanted == nil {
			in.Wanted = Stages{}
		}
		in.Wanted[m.Name] = stage
		if rank(stage) < rank(v1alpha1.StageDrain) {
			continue
		}
		if wave := c.wantedWave(m, node.Name, in.Waves[m.Name]); wave.Name != "" {
			if in.WantedWaves == nil {
				in.WantedWaves = translate.BegunWaves{}
			}
			in.WantedWaves[m.Name] = wave.BegunWave
			in.WantsTaint = in.WantsTaint || c.beginsDaemonSets(m, wave.Name)
			if wave.Left > 0 {
				if in.Left == nil {
					in.Left = map[string]int32{}
				}
				in.Left[m.Name] = wave.Left
			}
		}
	}
	return in, nil
}

// wantedStage is the stage that a maintenance, which may have changed since it decided,
// wants for a node; empty to release the node.
func (c *Controller) wantedStage(m *v1alpha1.NodeMaintenance, node *corev1.Node, has v1alpha1.MaintenanceStage) v1alpha1.MaintenanceStage {
	if m.DeletionTimestamp != nil || node.DeletionTimestamp != nil || !c.selectors.of(m).selects(node) {
		return ""
	}
	decided := c.decided.stage(m.Name, node.Name)
	switch {
	case m.Spec.Drain && rank(decided) >= rank(v1alpha1.StageDrain):
		return decided
	case m.Spec.Drain && rank(has) >= rank(v1alpha1.StageDrain):
		return has
	case m.Spec.Cordon:
		return v1alpha1.StageCordon
	case decided == v1alpha1.StagePlanning, decided == "" && m.Status.StartTime == nil:
		return v1alpha1.StagePlanning
	default:
		return ""
	}
}

// nodePatch is a merge patch of the node in the version that was seen.
type nodePatch struct {
	Metadata nodePatchMeta  `json:"metadata"`
	Spec     *nodePatchSpec `json:"spec,omitempty"`
}

type nodePatchMeta struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations"`
}

// nodePatchSpec has what changes. Taints are the whole list: a merge patch knows no other way.
type nodePatchSpec struct {
	Unschedulable *bool           `json:"unschedulable,omitempty"`
	Taints        *[]corev1.Taint `json:"taints,omitempty"`
}

// patchNode applies a decision. It returns false if the node was not as it was seen.
func (c *Controller) patchNode(ctx context.Context, node *corev1.Node, d NodeDecision) (bool, error) {
	patch := nodePatch{Metadata: nodePatchMeta{UID: node.UID, ResourceVersion: node.ResourceVersion, Annotations: map[string]*string{
		v1alpha1.CordonAnnotation:           orNull(d.CordonedBy),
		v1alpha1.MaintenancesAnnotation:     orNull(d.Stages.String()),
		v1alpha1.MaintenancePhaseAnnotation: orNull(string(d.Phase)),
		v1alpha1.MaintenanceWavesAnnotation: orNull(d.Waves.String()),
	}}}
	var spec nodePatchSpec
	if d.Unschedulable != node.Spec.Unschedulable {
		spec.Unschedulable = &d.Unschedulable
	}
	if d.Tainting != TaintKept {
		spec.Taints = &d.Taints
	}
	if spec != (nodePatchSpec{}) {
		patch.Spec = &spec
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return false, fmt.Errorf("encode patch: %w", err)
	}
	err = c.Client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, data))
	switch {
	case err == nil:
		c.Metrics.Wrote(metrics.MaintenanceWriteNode)
		log.FromContext(ctx).V(1).Info("Patched the node", "stages", d.Stages.String(), "cordon", d.Cordoning.String())
		return true, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, nil
	default:
		return false, fmt.Errorf("patch node: %w", err)
	}
}

// orNull is null, which removes an annotation, for an empty value.
func orNull(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// emitNode records events about a change of the cordon or the taint, and about waves that have
// begun.
func (c *Controller) emitNode(node *corev1.Node, in NodeInput, d NodeDecision) {
	stages := d.Stages
	if len(stages) == 0 {
		stages = in.Stages
	}
	var event events.Event
	switch d.Cordoning {
	case CordonMade:
		event = events.NodeCordoned(stages.String())
	case CordonFound:
		event = events.NodeFoundCordoned(stages.String())
	case CordonMadeAgain:
		event = events.NodeCordonedAgain(stages.String())
	case CordonEnded:
		event = events.NodeUncordoned(stages.String())
	case CordonLeft:
		event = events.NodeLeftCordoned(stages.String())
	case CordonKept:
	}
	events.Emit(c.Recorder, node, nil, event)
	switch d.Tainting {
	case TaintMade:
		events.Emit(c.Recorder, node, nil, events.NodeTainted(stages.String()))
	case TaintEnded:
		events.Emit(c.Recorder, node, nil, events.NodeUntainted(stages.String()))
	case TaintKept:
	}
	for name, wave := range d.Waves {
		if in.Waves[name].Name != wave.Name {
			events.Emit(c.Recorder, node, nil, events.NodeWaveBegan(name, wave.Name, in.Left[name]))
		}
	}
}
