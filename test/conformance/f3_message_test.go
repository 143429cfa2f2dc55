package conformance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// A report may be written by hand, with times and nothing else.
func TestConformance_F3_Message(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)
	apply := func(manager string, item *applyv1alpha1.InterceptorStatusApplyConfiguration) func(*testing.T, *v1alpha1.EvictionRequest) {
		return func(t *testing.T, er *v1alpha1.EvictionRequest) {
			t.Helper()
			config := applyv1alpha1.EvictionRequest(er.Name, ns).WithStatus(applyv1alpha1.EvictionRequestStatus().WithInterceptors(item))
			if err := c.Status().Apply(t.Context(), config, client.FieldOwner(manager), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
		}
	}
	item := func() *applyv1alpha1.InterceptorStatusApplyConfiguration {
		return applyv1alpha1.InterceptorStatus().WithName(interceptorA).WithStartTime(*at(0)).WithHeartbeatTime(*at(0))
	}
	patch := func(body string) func(*testing.T, *v1alpha1.EvictionRequest) {
		return func(t *testing.T, er *v1alpha1.EvictionRequest) {
			t.Helper()
			if err := c.Status().Patch(t.Context(), er.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := `"startTime":"` + at(0).UTC().Format("2006-01-02T15:04:05Z") + `","heartbeatTime":"` + at(0).UTC().Format("2006-01-02T15:04:05Z") + `"`
	times := patch(`{"status":{"interceptors":[{"name":"` + interceptorA + `",` + start + `},{"name":"` + interceptorB + `"},{"name":"` + interceptorC + `"},{"name":"` + imperative + `"}]}}`)
	for name, tc := range map[string]struct {
		writes []func(*testing.T, *v1alpha1.EvictionRequest)
		want   string
	}{
		"36 a merge patch of times alone stores an empty message": {writes: []func(*testing.T, *v1alpha1.EvictionRequest){times}},
		"36 an apply of times alone stores an empty message": {
			writes: []func(*testing.T, *v1alpha1.EvictionRequest){apply("mine", item())},
		},
		"36 an apply that leaves out its own message empties it": {
			writes: []func(*testing.T, *v1alpha1.EvictionRequest){apply("mine", item().WithMessage("working")), apply("mine", item())},
		},
		"36 an apply that leaves out the message of another manager keeps it": {
			writes: []func(*testing.T, *v1alpha1.EvictionRequest){apply("mine", item().WithMessage("working")), apply("other", item())},
			want:   "working",
		},
		"36 whoever applies no message does not own it, so another manager may apply one": {
			writes: []func(*testing.T, *v1alpha1.EvictionRequest){apply("mine", item()), apply("other", item().WithMessage("working")), apply("mine", item())},
			want:   "working",
		},
	} {
		t.Run(name, func(t *testing.T) {
			er := createRequest(t, c, ns)
			together(initialised, active(interceptorA))(er)
			if err := c.Status().Update(t.Context(), er, client.FieldOwner("controller")); err != nil {
				t.Fatal(err)
			}
			for _, write := range tc.writes {
				write(t, er)
			}
			stored := &v1alpha1.EvictionRequest{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), stored); err != nil {
				t.Fatal(err)
			}
			want := v1alpha1.InterceptorStatus{Name: interceptorA, StartTime: at(0), HeartbeatTime: at(0), Message: tc.want}
			if diff := cmp.Diff(want, stored.Status.Interceptors[0]); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}
