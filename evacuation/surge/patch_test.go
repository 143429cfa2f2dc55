package surge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// apply patches a pod as the API server has it.
func apply(t *testing.T, there *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	t.Helper()
	c := fake.NewClientBuilder().WithObjects(there).Build()
	got := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: there.Namespace, Name: there.Name}}
	err := c.Patch(t.Context(), got, client.RawPatch(types.JSONPatchType, patch))
	return got, err
}

func TestHandUpAndBack(t *testing.T) {
	cases := map[string]func(*corev1.Pod){
		"a pod like any other":           func(*corev1.Pod) {},
		"one without annotations":        func(p *corev1.Pod) { p.Annotations = nil },
		"one with no other label":        func(p *corev1.Pod) { p.Labels = map[string]string{hashLabel: hash} },
		"one with no other owner":        func(p *corev1.Pod) { p.OwnerReferences = p.OwnerReferences[1:] },
		"one that was given back before": func(p *corev1.Pod) { p.Annotations[FailedAnnotation] = `{"request":"old"}` },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			before := pod("web-1", "web-new")
			change(before)
			before.ResourceVersion = "999"
			patch, err := handUpPatch(before, deployment(1), t0)
			if err != nil {
				t.Fatal(err)
			}
			raised, err := apply(t, before.DeepCopy(), patch)
			if err != nil {
				t.Fatal(err)
			}
			rec, ok := handedUp(raised)
			want := record{Hash: hash, ReplicaSet: owner{"web-new", "web-new"}, Deployment: owner{"web", "d"}, At: metav1.NewTime(t0)}
			if diff := cmp.Diff(want, rec); !ok || diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: ptr.To(true)}
			if diff := cmp.Diff(&ref, metav1.GetControllerOf(raised)); diff != "" {
				t.Errorf("controller (-want +got):\n%s", diff)
			}
			if len(raised.OwnerReferences) != len(before.OwnerReferences) {
				t.Errorf("owners %v", raised.OwnerReferences)
			}
			if _, ok := raised.Labels[hashLabel]; ok {
				t.Error("it still has the label of its ReplicaSet")
			}

			raised.ResourceVersion = "999"
			patch, err = giveBackPatch(raised, rec, nil)
			if err != nil {
				t.Fatal(err)
			}
			after, err := apply(t, raised.DeepCopy(), patch)
			if err != nil {
				t.Fatal(err)
			}
			want2 := before.DeepCopy()
			delete(want2.Annotations, FailedAnnotation)
			after.ResourceVersion = want2.ResourceVersion
			if len(after.Annotations) == 0 {
				after.Annotations = want2.Annotations
			}
			if diff := cmp.Diff(want2, after); diff != "" {
				t.Errorf("the pod in the end (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever has changed since we looked stops the patch.
func TestPatchesTestWhatTheySaw(t *testing.T) {
	whose := func(uid types.UID) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences[1].UID = uid }
	}
	changes := map[string]func(*corev1.Pod){
		"another pod of that name": func(p *corev1.Pod) { p.UID = "other" },
		"another controller":       whose("other"),
		"another order of owners":  func(p *corev1.Pod) { p.OwnerReferences = p.OwnerReferences[1:] },
	}
	forUp := map[string]func(*corev1.Pod){
		"another hash":              func(p *corev1.Pod) { p.Labels[hashLabel] = "other" },
		"handed up in the meantime": func(p *corev1.Pod) { delete(p.Labels, hashLabel) },
	}
	forBack := map[string]func(*corev1.Pod){
		"given back in the meantime": func(p *corev1.Pod) { delete(p.Annotations, HandedUpAnnotation) },
		"handed up again":            func(p *corev1.Pod) { p.Annotations[HandedUpAnnotation] = "{}" },
	}
	seen := pod("web-1", "web-new")
	raised := up(t, seen, t0)
	rec, _ := handedUp(raised)
	handUp, err := handUpPatch(seen, deployment(1), t0)
	if err != nil {
		t.Fatal(err)
	}
	back, err := giveBackPatch(raised, rec, &failure{"er", "why"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, from *corev1.Pod, patch []byte, changes map[string]func(*corev1.Pod)) {
		for name, change := range changes {
			t.Run(what+" "+name, func(t *testing.T) {
				there := from.DeepCopy()
				change(there)
				if got, err := apply(t, there, patch); err == nil {
					t.Errorf("it was applied: %v", got.ObjectMeta)
				}
			})
		}
	}
	check("hand up", seen, handUp, changes)
	check("hand up", seen, handUp, forUp)
	check("give back", raised, back, changes)
	check("give back", raised, back, forBack)
	bare := seen.DeepCopy()
	bare.Annotations, bare.ResourceVersion = nil, "5"
	patch, err := handUpPatch(bare, deployment(1), t0)
	if err != nil {
		t.Fatal(err)
	}
	check("hand up", bare, patch, map[string]func(*corev1.Pod){
		"annotated in the meantime": func(p *corev1.Pod) { p.Annotations, p.ResourceVersion = map[string]string{"a": "b"}, "6" },
	})
}

// An owner that garbage collection has taken away is put back, too.
func TestGiveBackWithoutAController(t *testing.T) {
	raised := up(t, pod("web-1", "web-new"), t0)
	rec, _ := handedUp(raised)
	for _, owners := range [][]metav1.OwnerReference{nil, raised.OwnerReferences[:1]} {
		orphan := raised.DeepCopy()
		orphan.OwnerReferences, orphan.ResourceVersion = owners, "999"
		patch, err := giveBackPatch(orphan, rec, &failure{Request: "er", Message: strings.Repeat("ä", 2000)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(t, orphan, patch)
		if err != nil {
			t.Fatal(err)
		}
		if controller := metav1.GetControllerOf(got); controller == nil || controller.UID != "web-new" || len(got.OwnerReferences) != len(owners)+1 {
			t.Errorf("owners %v", got.OwnerReferences)
		}
		if message, ok := failedBefore(got, "er"); !ok || message != strings.Repeat("ä", 1000) {
			t.Errorf("it remembers %d characters, %t", len([]rune(message)), ok)
		}
		if _, ok := failedBefore(got, "another"); ok {
			t.Error("it remembers that for another request, too")
		}
	}
}

func TestHandedUp(t *testing.T) {
	raised := up(t, pod("web-1", "web-new"), t0)
	full, _ := handedUp(raised)
	only := record{Deployment: owner{"web", "d"}}
	cases := map[string]struct {
		change func(*corev1.Pod)
		want   record
		wantOK bool
	}{
		"as it was":                        {func(*corev1.Pod) {}, full, true},
		"no annotation":                    {func(p *corev1.Pod) { delete(p.Annotations, HandedUpAnnotation) }, record{}, false},
		"somebody gave it back by hand":    {func(p *corev1.Pod) { p.OwnerReferences[1].Kind = "ReplicaSet" }, record{}, false},
		"its owner was deleted without it": {func(p *corev1.Pod) { p.OwnerReferences = nil }, full, true},
		"an annotation nobody can read":    {func(p *corev1.Pod) { p.Annotations[HandedUpAnnotation] = "yes" }, only, true},
		"an annotation about somebody else": {
			func(p *corev1.Pod) {
				p.Annotations[HandedUpAnnotation] = strings.ReplaceAll(p.Annotations[HandedUpAnnotation], `"d"`, `"x"`)
			},
			record{Deployment: owner{"web", "d"}, At: full.At}, true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := raised.DeepCopy()
			tc.change(p)
			got, ok := handedUp(p)
			if diff := cmp.Diff(tc.want, got); ok != tc.wantOK || diff != "" {
				t.Errorf("handed up %t, record (-want +got):\n%s", ok, diff)
			}
		})
	}
}
