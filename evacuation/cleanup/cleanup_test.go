package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/deletioncost"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestMarks(t *testing.T) {
	cases := map[string]struct {
		pod  *builder.PodWrapper
		want []string
	}{
		"nothing of ours": {builder.Pod("shop", "web").Label("app", "web").Annotation("a", "b"), nil},
		"the guard's label, whatever it says": {
			builder.Pod("shop", "web").Label(v1alpha1.GuardLabel, "open"), []string{v1alpha1.GuardLabel}},
		"what the surge remembers":       {builder.Pod("shop", "web").Annotation(surge.FailedAnnotation, "{}"), []string{surge.FailedAnnotation}},
		"our deletion cost":              {builder.Pod("shop", "web").Annotation(corev1.PodDeletionCost, "-2147483647").Annotation(deletioncost.FormerAnnotation, "7"), []string{deletioncost.FormerAnnotation, corev1.PodDeletionCost}},
		"our words to the descheduler":   {builder.Pod("shop", "web").Annotation(inProgressAnnotation, "drawbridge.dev").Annotation(evictOnlyAnnotation, "drawbridge.dev"), []string{inProgressAnnotation, evictOnlyAnnotation}},
		"not those of KubeVirt":          {builder.Pod("shop", "web").Annotation(inProgressAnnotation, "kubevirt"), nil},
		"not what the pod's owner wrote": {builder.Pod("shop", "web").Interceptors("a.example.com").Label(surge.OptInLabel, "enabled"), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ops, got := marks(&metav1.PartialObjectMetadata{ObjectMeta: tc.pod.ObjectMeta})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is removed (-want +got):\n%s", diff)
			}
			if len(ops) != 2*len(tc.want) {
				t.Errorf("%d operations, want a test and a removal each", len(ops))
			}
		})
	}
}

// jumping is a clock on which every pause is over as soon as it begins.
type jumping struct{ *testingclock.FakeClock }

func (c jumping) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// bench is a cluster in which Drawbridge was killed in the middle.
func bench(t *testing.T, refuse func(verb string, obj client.Object) error) (*Cleaner, client.Client, *strings.Builder) {
	t.Helper()
	objects := []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "drawbridge"}},
		builder.Pod("shop", "web").UID("uid-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(),
		builder.Pod("shop", "other").UID("uid-2").Obj(),
		builder.EvictionRequest("shop", "web", "uid-1").UID("er-1").Requesters("a.example.com").Obj(),
		builder.EvictionRequest("shop", "gone", "uid-3").UID("er-3").Requesters("a.example.com").Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(),
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.GuardBudgetName, UID: "b", Labels: map[string]string{v1alpha1.GuardBudgetLabel: "true"}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: v1alpha1.GuardBudgetName, UID: "c"}},
		&v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: "reboot"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "leader"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "alice", Labels: map[string]string{translate.LeaseLabel: translate.LeaseLabelValue}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "somebody-else"}},
	}
	check := func(verb string, obj client.Object) error {
		if refuse == nil {
			return nil
		}
		return refuse(verb, obj)
	}
	api := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := check("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := check("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	out := &strings.Builder{}
	return &Cleaner{
		Options: Options{Namespace: "system", WebhookConfiguration: "drawbridge", LeaderLease: "leader", Wait: time.Minute},
		Client:  api, Clock: jumping{testingclock.NewFakeClock(t0)}, Out: out,
	}, api, out
}

// left are the objects of the bench that are there, the pods with their labels.
func left(t *testing.T, api client.Client) []string {
	t.Helper()
	var names []string
	for _, list := range []client.ObjectList{
		&admissionregistrationv1.ValidatingWebhookConfigurationList{}, &corev1.PodList{}, &v1alpha1.EvictionRequestList{},
		&policyv1.PodDisruptionBudgetList{}, &coordinationv1.LeaseList{}, &v1alpha1.NodeMaintenanceList{},
	} {
		if err := api.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		switch l := list.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfigurationList:
			names = append(names, fmt.Sprintf("%d configurations", len(l.Items)))
		case *corev1.PodList:
			for _, pod := range l.Items {
				names = append(names, fmt.Sprintf("pod %s %v", pod.Name, pod.Labels))
			}
		case *v1alpha1.EvictionRequestList:
			for _, er := range l.Items {
				names = append(names, fmt.Sprintf("request %s with %d requesters", er.Name, len(er.Spec.Requesters)))
			}
		case *policyv1.PodDisruptionBudgetList:
			for _, budget := range l.Items {
				names = append(names, "budget "+budget.Namespace)
			}
		case *v1alpha1.NodeMaintenanceList:
			for _, nm := range l.Items {
				names = append(names, "maintenance "+nm.Name)
			}
		case *coordinationv1.LeaseList:
			for _, lease := range l.Items {
				names = append(names, "lease "+lease.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		keep    bool
		refuse  func(verb string, obj client.Object) error
		want    []string
		wantErr string
	}{
		"nothing is left but what belongs to others": {
			want: []string{"0 configurations", "budget other", "lease somebody-else", "pod other map[]", "pod web map[]"},
		},
		"the requests can be kept": {
			keep: true,
			want: []string{"0 configurations", "budget other", "lease alice", "lease somebody-else", "pod other map[]", "pod web map[]", "request uid-1 with 1 requesters", "request uid-3 with 1 requesters"},
		},
		"a step that fails does not keep the others": {
			refuse: func(verb string, obj client.Object) error {
				if _, ok := obj.(*corev1.Pod); ok && verb == "patch" {
					return boom
				}
				return nil
			},
			want:    []string{"0 configurations", "budget other", "lease somebody-else", "pod other map[]", "pod web map[drawbridge.dev/guard:closed]"},
			wantErr: "clean the pods: clean pod shop/web: boom",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, api, out := bench(t, tc.refuse)
			c.Keep = tc.keep
			got := ""
			if err := c.Run(t.Context()); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, left(t, api)); diff != "" {
				t.Errorf("what is left (-want +got):\n%s", diff)
			}
			if tc.wantErr != "" {
				return
			}
			out.Reset()
			if err := c.Run(t.Context()); err != nil {
				t.Errorf("again: %v", err)
			}
			if diff := cmp.Diff("nothing of Drawbridge is left on the objects of others\n", out.String()); diff != "" {
				t.Errorf("what it says the second time (-want +got):\n%s", diff)
			}
		})
	}
}

// Who waits for a manager that is not there waits for ever.
func TestMaintenancesThatNobodyEndsAreReported(t *testing.T) {
	c, api, _ := bench(t, nil)
	nm := &v1alpha1.NodeMaintenance{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "reboot"}, nm); err != nil {
		t.Fatal(err)
	}
	nm.Finalizers = []string{v1alpha1.MaintenanceFinalizer}
	if err := api.Update(t.Context(), nm); err != nil {
		t.Fatal(err)
	}
	got := ""
	if err := c.Run(t.Context()); err != nil {
		got = err.Error()
	}
	want := "end the maintenances: 1 maintenances still hold their nodes, reboot the first: start the manager again, or uncordon the nodes and remove the finalizer " + v1alpha1.MaintenanceFinalizer
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
