package requester

import (
	"context"
	"errors"
	"strings"
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhatCannotBeAskedForNatively(t *testing.T) {
	kind := lifecyclev1alpha1.SchemeGroupVersion.WithKind("EvictionRequest")
	wishes := lifecyclev1alpha1.SchemeGroupVersion.WithResource("evictionrequests").GroupResource()
	cases := map[string]struct {
		name   string
		answer error
		want   string
		served bool
	}{
		"a name that is no domain name": {name: "drain", want: "is no fully qualified domain name", served: true},
		"a name of Kubernetes":          {name: "drain.k8s.io", want: "names under k8s.io cannot ask natively", served: true},
		"a name under kubernetes.io":    {name: "a.kubernetes.io", want: "names under kubernetes.io cannot ask natively", served: true},
		"an API that the client has not found": {
			name: us, answer: &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{"v1alpha1"}}, want: "does not serve lifecycle.k8s.io/v1alpha1",
		},
		"an API that is gone": {
			name: us, answer: apierrors.NewGenericServerResponse(404, "patch", schema.GroupResource{}, "", "", 0, true), want: "does not serve lifecycle.k8s.io/v1alpha1",
		},
		"a namespace that is not there": {name: us, answer: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), want: `"shop" not found`, served: true},
		"who may not": {
			name: us, answer: apierrors.NewForbidden(wishes, "", nil), want: "needs get, create and patch on evictionrequests.lifecycle.k8s.io", served: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, _ := requesterOn(t, clientinterceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return tc.answer
			}})
			r.Name = tc.name
			_, err := r.JoinNative(t.Context(), webPod("u1"))
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrNotServed) == tc.served {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNamesOfNativeWishes(t *testing.T) {
	long := &Requester{Name: strings.Repeat(strings.Repeat("a", 60)+".", 4) + "com"}
	mine, other := &Requester{Name: us}, &Requester{Name: "other.example.com"}
	pod := webPod("11111111-2222-3333-4444-555555555555")
	if mine.nativeName(pod) == other.nativeName(pod) || mine.nativeName(pod) == mine.nativeName(webPod("u2")) {
		t.Error("two wishes have one name")
	}
	if key := mine.NativeKey(); key != us+"/requester" {
		t.Errorf("key %s", key)
	}
	if name := long.nativeName(pod).Name; len(name) > 253 {
		t.Errorf("name of %d characters", len(name))
	}
}
