package maintenance_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
	"github.com/drawbridge-dev/drawbridge/translate"
)

type stages = maintenance.Stages

func TestNodeStep(t *testing.T) {
	const ours, other = v1alpha1.CordonOurs, v1alpha1.CordonOther
	cordon, drain, planning := v1alpha1.StageCordon, v1alpha1.StageDrain, v1alpha1.StagePlanning
	taint := translate.MaintenanceTaint()
	cordonTaint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	cases := map[string]struct {
		in   maintenance.NodeInput
		want maintenance.NodeDecision
	}{
		"a node that nobody wants anything of is left alone": {},
		"one that somebody has cordoned, too": {
			in:   maintenance.NodeInput{Unschedulable: true},
			want: maintenance.NodeDecision{Unschedulable: true},
		},
		"planning only tells": {
			in:   maintenance.NodeInput{Wanted: stages{"a": planning}},
			want: maintenance.NodeDecision{Stages: stages{"a": planning}, Phase: planning, Write: true},
		},
		"the first maintenance cordons": {
			in:   maintenance.NodeInput{Wanted: stages{"a": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": cordon}, Phase: cordon, Cordoning: maintenance.CordonMade, Write: true},
		},
		"a cordon that was there is remembered as somebody else's": {
			in:   maintenance.NodeInput{Unschedulable: true, Wanted: stages{"a": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: other, Stages: stages{"a": cordon}, Phase: cordon, Cordoning: maintenance.CordonFound, Write: true},
		},
		"also if the maintenance was in planning then": {
			in:   maintenance.NodeInput{Unschedulable: true, Stages: stages{"a": planning}, Phase: planning, Wanted: stages{"a": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: other, Stages: stages{"a": cordon}, Phase: cordon, Cordoning: maintenance.CordonFound, Write: true},
		},
		"nothing to do is no write": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain},
		},
		"a second maintenance joins, and the phase is the furthest": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain, "b": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain, "b": cordon}, Phase: drain, Write: true},
		},
		"the first of two leaves, and the node stays cordoned": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain, "b": cordon}, Phase: drain, Wanted: stages{"b": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"b": cordon}, Phase: cordon, Write: true},
		},
		"the last leaves": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: ours, Stages: stages{"b": cordon}, Phase: cordon},
			want: maintenance.NodeDecision{Cordoning: maintenance.CordonEnded, Write: true},
		},
		"the last leaves a node that was cordoned before": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: other, Stages: stages{"b": cordon}, Phase: cordon},
			want: maintenance.NodeDecision{Unschedulable: true, Cordoning: maintenance.CordonLeft, Write: true},
		},
		"the last leaves while one is in planning": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": cordon}, Phase: cordon, Wanted: stages{"b": planning}},
			want: maintenance.NodeDecision{Stages: stages{"b": planning}, Phase: planning, Cordoning: maintenance.CordonEnded, Write: true},
		},
		"uncordoned by hand in the middle, it is cordoned again": {
			in:   maintenance.NodeInput{CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Cordoning: maintenance.CordonMadeAgain, Write: true, Restores: true},
		},
		"whoever had cordoned it before does not want that any more": {
			in:   maintenance.NodeInput{CordonedBy: other, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Cordoning: maintenance.CordonMadeAgain, Write: true, Restores: true},
		},
		"uncordoned again just after that, it waits a little": {
			in: maintenance.NodeInput{
				CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}, Restored: noon, Now: noon.Add(4 * time.Second),
			},
			want: maintenance.NodeDecision{CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, WakeAt: noon.Add(5 * time.Second)},
		},
		"also if a clock has jumped": {
			in: maintenance.NodeInput{
				CordonedBy: other, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}, Restored: noon.Add(time.Hour), Now: noon,
			},
			want: maintenance.NodeDecision{CordonedBy: other, Stages: stages{"a": drain}, Phase: drain, WakeAt: noon.Add(5 * time.Second)},
		},
		"all else is written meanwhile": {
			in: maintenance.NodeInput{
				CordonedBy: ours, Stages: stages{"a": drain, "b": drain}, Phase: drain, Wanted: stages{"a": drained}, Restored: noon, Now: noon,
			},
			want: maintenance.NodeDecision{CordonedBy: ours, Stages: stages{"a": drained}, Phase: drained, Write: true, WakeAt: noon.Add(5 * time.Second)},
		},
		"also the taint of a wave that begins": {
			in: maintenance.NodeInput{
				CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}, WantsTaint: true,
				WantedWaves: translate.BegunWaves{"a": {Name: "daemons", Since: noon}}, Restored: noon, Now: noon,
			},
			want: maintenance.NodeDecision{
				CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Write: true, WakeAt: noon.Add(5 * time.Second),
				Taints: []corev1.Taint{taint}, Tainting: maintenance.TaintMade, Waves: translate.BegunWaves{"a": {Name: "daemons", Since: noon}},
			},
		},
		"a taint that is taken away just after that waits, too": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				Taints: []corev1.Taint{cordonTaint}, WantsTaint: true, Restored: noon, Now: noon.Add(time.Second),
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Taints: []corev1.Taint{cordonTaint}, WakeAt: noon.Add(5 * time.Second),
			},
		},
		"what has ended meanwhile is not made again": {
			in:   maintenance.NodeInput{CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Restored: noon, Now: noon},
			want: maintenance.NodeDecision{Write: true},
		},
		"and then it is cordoned again": {
			in: maintenance.NodeInput{
				CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain}, Restored: noon, Now: noon.Add(5 * time.Second),
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Cordoning: maintenance.CordonMadeAgain, Write: true, Restores: true,
			},
		},
		"uncordoned by hand just before the end": {
			in:   maintenance.NodeInput{CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain},
			want: maintenance.NodeDecision{Write: true},
		},
		"and by whoever had cordoned it": {
			in:   maintenance.NodeInput{CordonedBy: other, Stages: stages{"a": drain}, Phase: drain},
			want: maintenance.NodeDecision{Write: true},
		},
		"an owner that nobody knows is somebody else": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: "me", Wanted: stages{"a": cordon}},
			want: maintenance.NodeDecision{Unschedulable: true, CordonedBy: other, Stages: stages{"a": cordon}, Phase: cordon, Cordoning: maintenance.CordonFound, Write: true},
		},
		"a wave begins": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				WantedWaves: translate.BegunWaves{"a": {Name: "db", Since: noon}},
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Write: true,
				Waves: translate.BegunWaves{"a": {Name: "db", Since: noon}},
			},
		},
		"a wave that has begun is no write": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				Waves: translate.BegunWaves{"a": {Name: "db", Since: noon}}, WantedWaves: translate.BegunWaves{"a": {Name: "db", Since: noon}},
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain,
				Waves: translate.BegunWaves{"a": {Name: "db", Since: noon}},
			},
		},
		"a wave of DaemonSets begins, and taints the node besides what others have": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				Taints: []corev1.Taint{cordonTaint}, WantsTaint: true, WantedWaves: translate.BegunWaves{"a": {Name: "daemons", Since: noon}},
				Restored: noon, Now: noon,
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Write: true,
				Taints: []corev1.Taint{cordonTaint, taint}, Tainting: maintenance.TaintMade, Waves: translate.BegunWaves{"a": {Name: "daemons", Since: noon}},
			},
		},
		"a taint that is there is no write": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				Taints: []corev1.Taint{taint, cordonTaint}, WantsTaint: true,
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain,
				Taints: []corev1.Taint{taint, cordonTaint},
			},
		},
		"one that somebody has changed is corrected": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Wanted: stages{"a": drain},
				Taints: []corev1.Taint{{Key: taint.Key, Value: "x", Effect: taint.Effect}}, WantsTaint: true,
			},
			want: maintenance.NodeDecision{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain, Write: true,
				Taints: []corev1.Taint{taint}, Tainting: maintenance.TaintMade, Restores: true,
			},
		},
		"it goes when the last one ends, and those of others stay": {
			in: maintenance.NodeInput{
				Unschedulable: true, CordonedBy: ours, Stages: stages{"a": drain}, Phase: drain,
				Taints: []corev1.Taint{taint, cordonTaint, {Key: taint.Key, Effect: corev1.TaintEffectNoExecute}},
			},
			want: maintenance.NodeDecision{
				Cordoning: maintenance.CordonEnded, Write: true,
				Taints: []corev1.Taint{cordonTaint, {Key: taint.Key, Effect: corev1.TaintEffectNoExecute}}, Tainting: maintenance.TaintEnded,
			},
		},
		"one that is left over is removed": {
			in:   maintenance.NodeInput{Taints: []corev1.Taint{taint}},
			want: maintenance.NodeDecision{Taints: []corev1.Taint{}, Tainting: maintenance.TaintEnded, Write: true},
		},
		"what is left of it is removed": {
			in:   maintenance.NodeInput{Unschedulable: true, CordonedBy: "me"},
			want: maintenance.NodeDecision{Unschedulable: true, Write: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := maintenance.NodeStep(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			// What was decided is final: looking again changes nothing.
			again := maintenance.NodeStep(maintenance.NodeInput{
				Unschedulable: got.Unschedulable, CordonedBy: got.CordonedBy, Stages: got.Stages, Phase: got.Phase, Wanted: tc.in.Wanted,
				Waves: got.Waves, WantedWaves: tc.in.WantedWaves, Taints: got.Taints, WantsTaint: tc.in.WantsTaint,
				Restored: tc.in.Restored, Now: tc.in.Now,
			})
			if again.Write {
				t.Errorf("looking again writes again: %+v", again)
			}
		})
	}
}
