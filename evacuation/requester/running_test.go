package requester

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Our write may be refused because of what has happened to the request, or for good.
func TestARefusalOfARequestThatRunsIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*v1alpha1.EvictionRequest)
		told      bool
	}{
		"a policy refuses it":       {func(*v1alpha1.EvictionRequest) {}, true},
		"nobody wants it any more":  {func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters = nil }, false},
		"it has been canceled":      {func(er *v1alpha1.EvictionRequest) { meta.SetStatusCondition(&er.Status.Conditions, canceled()) }, false},
		"another one has come then": {func(er *v1alpha1.EvictionRequest) { er.UID = "er-2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			seen := wanted(them)
			seen.UID = "er-1"
			refusal := apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest").GroupKind(), seen.Name, nil)
			reads := 0
			r, _ := requesterOn(t, clientinterceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return refusal
				},
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
					er := object.(*v1alpha1.EvictionRequest)
					seen.DeepCopyInto(er)
					if reads++; reads > 1 {
						tc.meanwhile(er)
					}
					return nil
				},
			}, webPod("u1"))
			if err := r.JoinRunning(t.Context(), webPod("u1"), seen); apierrors.IsInvalid(err) != tc.told || tc.told != (err != nil) {
				t.Errorf("error %v, want one: %t", err, tc.told)
			}
		})
	}
}

func canceled() metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoRequesters}
}
