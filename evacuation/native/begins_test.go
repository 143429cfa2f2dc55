package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Only the first write of an Eviction, and only where interceptors of ours may work, calls for a
// live look.
func TestNative_AnEvictionBeginsBesideOurs(t *testing.T) {
	for _, tc := range []struct {
		name         string
		interceptors []string
		ours         *v1alpha1.EvictionRequest
		want         [2]bool
	}{
		{"nobody intercepts", nil, nil, [2]bool{}},
		{"one intercepts", []string{"a.example.com"}, nil, [2]bool{true, false}},
		{"our request is there", nil, asksUs("ours", "drain.example.com"), [2]bool{true, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, first)
			w.Interceptors, w.Ours = tc.interceptors, tc.ours
			w.wants("wish", "drain.example.com/me")
			w.step() // It is created.
			begins := w.begins(Decide(w.Situation))
			w.settle()
			w.completes(0, first)
			if diff := cmp.Diff(tc.want, [2]bool{begins, w.begins(Decide(w.Situation))}); diff != "" {
				t.Errorf("it begins at its first write, and at one after that (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNative_OurRequestIsComparedWithThatOfTheAPIServer(t *testing.T) {
	of := func(uid, version string) *v1alpha1.EvictionRequest {
		er := asksUs("", "drain.example.com")
		er.UID, er.ResourceVersion = types.UID(uid), version
		return er
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		cached, live *v1alpha1.EvictionRequest
		want         bool
	}{
		{"there is none", nil, nil, true},
		{"it is the same", of("1", "7"), of("1", "7"), true},
		{"the cache is behind", of("1", "7"), of("1", "8"), false},
		{"it is gone", of("1", "7"), nil, false},
		{"the cache has not seen it yet", nil, of("1", "7"), false},
		{"it was made again", of("1", "7"), of("2", "7"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stored []client.Object
			if tc.live != nil {
				stored = append(stored, tc.live)
			}
			r := &Reconciler{APIReader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).Build()}
			got, err := r.isFresh(t.Context(), &Situation{Namespace: "shop", UID: podUID, Ours: tc.cached})
			if err != nil || got != tc.want {
				t.Errorf("fresh: %t, error %v; want %t", got, err, tc.want)
			}
		})
	}
}
