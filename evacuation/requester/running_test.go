package requester

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Whoever joins a request that runs begins no other one.
func TestOnlyTheRequestThatWasSeenIsJoined(t *testing.T) {
	seen := wanted(them)
	seen.UID = "er-1"
	another := wanted(them)
	another.UID = "er-2"
	full := wanted()
	full.UID = "er-1"
	for range v1alpha1.MaxRequesters {
		full.Spec.Requesters = append(full.Spec.Requesters, v1alpha1.Requester{Name: them})
	}
	unwanted := wanted()
	unwanted.UID = "er-1"
	for name, tc := range map[string]struct {
		stored *v1alpha1.EvictionRequest
		want   []v1alpha1.Requester
		err    error
	}{
		"it runs":                {seen, []v1alpha1.Requester{{Name: us}}, nil}, // This client merges no lists.
		"it is gone":             {nil, nil, nil},
		"there is another one":   {another, []v1alpha1.Requester{{Name: them}}, nil},
		"nobody wants it":        {unwanted, nil, nil},
		"it has no room for one": {full, full.Spec.Requesters, ErrTooManyRequesters},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{webPod("u1")}
			if tc.stored != nil {
				objects = append(objects, tc.stored.DeepCopy())
			}
			r, _ := requesterOn(t, clientinterceptor.Funcs{}, objects...)
			if err := r.JoinRunning(t.Context(), webPod("u1"), seen); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			er, err := r.get(t.Context(), webPod("u1"))
			if err != nil {
				t.Fatal(err)
			}
			var got []v1alpha1.Requester
			if er != nil {
				got = er.Spec.Requesters
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		})
	}
}
