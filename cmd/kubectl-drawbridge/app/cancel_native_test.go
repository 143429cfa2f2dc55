package app

import (
	"context"
	"errors"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What was withdrawn is not reported as an error to those who may not see what becomes of it.
func TestWhatBecomesOfANativeEviction(t *testing.T) {
	pod := builder.Pod("shop", "web").UID("uid").Obj()
	running := builder.NativeEviction("shop", "web", "uid").Obj()
	ended := func(condition lifecyclev1alpha1.EvictionConditionType) *lifecyclev1alpha1.Eviction {
		e := running.DeepCopy()
		e.Status.Conditions = []metav1.Condition{{Type: string(condition), Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))}}
		return e
	}
	for name, tc := range map[string]struct {
		stored  []client.Object
		refused error
		want    v1alpha1.RequestState
	}{
		"there is none":         {want: v1alpha1.StateCanceled},
		"it runs":               {stored: []client.Object{running}, want: v1alpha1.StateIntercepting},
		"it was canceled":       {stored: []client.Object{ended(lifecyclev1alpha1.EvictionConditionFailed)}, want: v1alpha1.StateCanceled},
		"it was too late":       {stored: []client.Object{ended(lifecyclev1alpha1.EvictionConditionTargetEvicted)}, want: v1alpha1.StateEvicted},
		"who may not look":      {refused: apierrors.NewForbidden(schema.GroupResource{Group: "lifecycle.k8s.io", Resource: "evictions"}, "", errors.New("no")), want: v1alpha1.StateIntercepting},
		"the server is in need": {refused: apierrors.NewInternalError(errors.New("etcd"))},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cli.Connection{Client: fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(tc.stored...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					return errors.Join(tc.refused, c.List(ctx, list, o...))
				},
			}).Build()}
			got, err := nativeOutcome(t.Context(), c, pod)
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("state %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}
