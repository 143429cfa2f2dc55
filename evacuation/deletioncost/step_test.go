package deletioncost

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func with(annotations ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		m[annotations[i]] = annotations[i+1]
	}
	return m
}

func TestStep(t *testing.T) {
	const ours, own = "-2147483647", "7"
	runs := input{OfReplicaSet: true, Running: true, Lasting: true}
	over := input{OfReplicaSet: true}
	cases := map[string]struct {
		in          input
		annotations map[string]string
		want        change
	}{
		"an eviction begins":                              {runs, nil, lower},
		"of a pod with a cost of its own":                 {runs, with(corev1.PodDeletionCost, own), lower},
		"of a pod with a cost that nobody understands":    {runs, with(corev1.PodDeletionCost, "cheap"), lower},
		"of a pod that is to go first anyhow":             {runs, with(corev1.PodDeletionCost, "-2147483648"), keep},
		"of a pod that has our cost from somebody else":   {runs, with(corev1.PodDeletionCost, ours), keep},
		"of a pod of a StatefulSet":                       {input{Running: true, Lasting: true}, nil, keep},
		"which is over in a moment":                       {input{OfReplicaSet: true, Running: true}, nil, keep},
		"of a pod that ends":                              {input{OfReplicaSet: true, Running: true, Lasting: true, Ending: true}, nil, keep},
		"it goes on":                                      {runs, with(FormerAnnotation, own, corev1.PodDeletionCost, ours), keep},
		"it goes on, and somebody has changed the cost":   {runs, with(FormerAnnotation, own, corev1.PodDeletionCost, "100"), keep},
		"it is canceled":                                  {over, with(FormerAnnotation, own, corev1.PodDeletionCost, ours), undo},
		"it is canceled, and somebody has changed it":     {over, with(FormerAnnotation, own, corev1.PodDeletionCost, "100"), undo},
		"it is canceled while the pod has another owner":  {input{}, with(FormerAnnotation, "", corev1.PodDeletionCost, ours), undo},
		"it is over with the pod":                         {input{OfReplicaSet: true, Ending: true}, with(FormerAnnotation, own, corev1.PodDeletionCost, ours), keep},
		"nothing goes on":                                 {over, nil, keep},
		"nothing goes on, and a person has set our value": {over, with(corev1.PodDeletionCost, ours), keep},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Annotations = tc.annotations
			if got := step(tc.in); got != tc.want {
				t.Errorf("got %d, want %d (keep, lower, undo)", got, tc.want)
			}
		})
	}
}

// A pod is afterwards as it was before, but for what somebody else has changed.
func TestPatches(t *testing.T) {
	const ours = "-2147483647"
	cases := map[string]struct {
		before, lowered, after map[string]string
		meanwhile              func(annotations map[string]string)
	}{
		"a pod without annotations": {before: nil, lowered: with(FormerAnnotation, "", corev1.PodDeletionCost, ours), after: nil},
		"a pod with others":         {before: with("a", "b"), lowered: with("a", "b", FormerAnnotation, "", corev1.PodDeletionCost, ours), after: with("a", "b")},
		"a pod with a cost":         {before: with(corev1.PodDeletionCost, "7"), lowered: with(FormerAnnotation, "7", corev1.PodDeletionCost, ours), after: with(corev1.PodDeletionCost, "7")},
		"somebody changes the cost": {
			before: with(corev1.PodDeletionCost, "7"), lowered: with(FormerAnnotation, "7", corev1.PodDeletionCost, ours), after: with(corev1.PodDeletionCost, "100"),
			meanwhile: func(a map[string]string) { a[corev1.PodDeletionCost] = "100" },
		},
		"somebody removes the cost": {
			before: with(corev1.PodDeletionCost, "7", "a", "b"), lowered: with(FormerAnnotation, "7", corev1.PodDeletionCost, ours, "a", "b"), after: with("a", "b"),
			meanwhile: func(a map[string]string) { delete(a, corev1.PodDeletionCost) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod("shop", "web").UID("uid-1").Obj()
			pod.Annotations = maps.Clone(tc.before)
			c := fake.NewClientBuilder().WithObjects(pod).Build()
			patch := func(uid types.UID, annotations map[string]string, do change) error {
				data, err := patchOf(uid, annotations, do)
				if err != nil {
					t.Fatal(err)
				}
				return c.Patch(t.Context(), pod, client.RawPatch(types.JSONPatchType, data))
			}
			if err := patch("uid-2", tc.before, lower); err == nil {
				t.Error("another pod of that name was changed")
			}
			if err := patch("uid-1", with(corev1.PodDeletionCost, "1", "a", "b"), lower); err == nil {
				t.Error("a pod was changed whose cost is another one")
			}
			if err := patch("uid-1", tc.before, lower); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.lowered, pod.Annotations); diff != "" {
				t.Errorf("while the eviction goes on (-want +got):\n%s", diff)
			}
			if tc.meanwhile != nil {
				read := maps.Clone(pod.Annotations)
				tc.meanwhile(pod.Annotations)
				if err := c.Update(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if err := patch("uid-1", read, undo); err == nil {
					t.Error("a change that was not seen was overwritten")
				}
			}
			if err := patch("uid-1", pod.Annotations, undo); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.after, pod.Annotations); diff != "" && len(tc.after)+len(pod.Annotations) > 0 {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
		})
	}
}
