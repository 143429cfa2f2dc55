package cleanup

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func leaderLease(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "leader"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

func TestHolder(t *testing.T) {
	cases := map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"renewed a moment ago":             {leaderLease("manager-1", t0.Add(-time.Second)), "manager-1"},
		"renewed by a clock that is ahead": {leaderLease("manager-1", t0.Add(time.Minute)), "manager-1"},
		"run out":                          {leaderLease("manager-1", t0.Add(-15*time.Second)), ""},
		"given back":                       {leaderLease("", t0.Add(-time.Second)), ""},
		"never held":                       {&coordinationv1.Lease{}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, holder(tc.lease, t0)); diff != "" {
				t.Errorf("holder (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManagersAreNamed(t *testing.T) {
	terminating := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ends", DeletionTimestamp: &metav1.Time{Time: t0}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	failed := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evicted"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	cases := map[string]struct {
		left managers
		want string
	}{
		"nobody":                              {managers{pods: running([]corev1.Pod{failed})}, ""},
		"a pod that terminates":               {managers{pods: running([]corev1.Pod{terminating, failed})}, "pods ends"},
		"a leader without a pod":              {managers{leader: "elsewhere"}, "elsewhere, which holds Lease system/leader"},
		"a Deployment that may make pods yet": {managers{unscaled: "drawbridge"}, "Deployment drawbridge"},
		"all of them":                         {managers{"drawbridge", []string{"a", "b"}, "a_1"}, "Deployment drawbridge, and pods a, b, and a_1, which holds Lease system/leader"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.left.describe(types.NamespacedName{Namespace: "system", Name: "leader"})); diff != "" {
				t.Errorf("who is left (-want +got):\n%s", diff)
			}
			if tc.left.none() != (tc.want == "") {
				t.Errorf("none: %t", tc.left.none())
			}
		})
	}
}

// The managers' clocks may be anything but stopped: this one renews for ever.
func TestAManagerThatNeverEndsIsNamed(t *testing.T) {
	c, api, out := bench(t, nil)
	held := &coordinationv1.Lease{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: "leader"}, held); err != nil {
		t.Fatal(err)
	}
	held.Spec = leaderLease("manager-1_abc", t0.Add(time.Hour)).Spec
	if err := api.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	got := ""
	if err := c.Run(t.Context()); err != nil {
		got = err.Error()
	}
	want := "stop the manager: still there after 1m30s: manager-1_abc, which holds Lease system/leader: stop that manager, or delete its pod with --force if its node is gone, and run this again\n" +
		"delete the leases: lease leader is held by manager-1_abc"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s\nit says: %s", diff, out)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
		t.Errorf("the Lease of who leads: %v", err)
	}
}

// A manager that was about to end may write once more after we have looked.
func TestWhatComesBackIsTakenBackAgain(t *testing.T) {
	cases := map[string]struct {
		// times is how often the guard's label comes back at the end of a pass.
		times   int
		want    string
		wantErr string
	}{
		"once": {times: 1, want: "pod web map[]"},
		"for ever": {
			times: 100, want: "pod web map[drawbridge.dev/guard:closed]",
			wantErr: "there was something to take back in each of 5 passes: somebody still writes it; stop every manager of Drawbridge, and run this again",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, api, out := bench(t, nil)
			more := tc.times
			c.Client = interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, last := list.(*coordinationv1.LeaseList); last && more > 0 {
						more--
						pod := &corev1.Pod{}
						if err := api.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, pod); err != nil {
							return err
						}
						pod.Labels = map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}
						if err := api.Update(ctx, pod); err != nil {
							return err
						}
					}
					return inner.List(ctx, list, opts...)
				},
			})
			got := ""
			if err := c.Run(t.Context()); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if there := left(t, api); !slices.Contains(there, tc.want) {
				t.Errorf("left are %q, want %q", there, tc.want)
			}
			if said := strings.Contains(out.String(), "nothing of Drawbridge is left"); said != (tc.wantErr == "") {
				t.Errorf("it says: %s", out)
			}
		})
	}
}

// Two managers would lead: the one that has just taken the Lease, and the next one that finds none.
func TestALeaseThatIsRenewedMeanwhileStays(t *testing.T) {
	c, api, out := bench(t, nil)
	key := client.ObjectKey{Namespace: "system", Name: "leader"}
	c.Client = interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			renewed := &coordinationv1.Lease{}
			if err := api.Get(ctx, key, renewed); err != nil {
				return err
			}
			renewed.Spec = leaderLease("manager-1", t0).Spec
			if err := api.Update(ctx, renewed); err != nil {
				return err
			}
			return inner.Delete(ctx, obj, opts...)
		},
	})
	if err := c.deleteLeaderLease(t.Context()); err != nil {
		t.Error(err)
	}
	if err := api.Get(t.Context(), key, &coordinationv1.Lease{}); err != nil {
		t.Errorf("the Lease of who leads: %v; it says: %s", err, out)
	}
}
