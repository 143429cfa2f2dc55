package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// clusterOf is a cluster with these objects. refused is the answer to what is asked of the native
// API and of ConfigMaps; asked counts that.
func clusterOf(served bool, refused error, asked *int, objects ...client.Object) *Connection {
	mapper := meta.NewDefaultRESTMapper(nil)
	if served {
		mapper.Add(lifecyclev1alpha1.SchemeGroupVersion.WithKind("Eviction"), meta.RESTScopeNamespace)
	}
	return &Connection{Client: fake.NewClientBuilder().WithScheme(Scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
			*asked++
			return errors.Join(refused, c.Get(ctx, key, object, o...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			*asked++
			if _, native := list.(*lifecyclev1alpha1.EvictionList); native && refused != nil {
				return refused
			}
			return c.List(ctx, list, o...)
		},
	}).Build()}
}

func TestWhoIsSaidToBeInCharge(t *testing.T) {
	state := func(name, who string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name}, Data: map[string]string{"inCharge": who, "since": "2026-11-27T12:00:00Z"}}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "drawbridge-native", errors.New("no"))
	for name, tc := range map[string]struct {
		unserved  bool
		installed Installation
		state     *corev1.ConfigMap
		refused   error
		want      string
	}{
		"nobody, where it is not served":  {unserved: true, state: state(DefaultNativeState, "Drawbridge"), want: ""},
		"Drawbridge":                      {state: state(DefaultNativeState, "Drawbridge"), want: "Drawbridge"},
		"Drawbridge, of another name":     {installed: Installation{NativeState: "x-native"}, state: state("x-native", "Drawbridge"), want: "Drawbridge"},
		"the cluster":                     {state: state(DefaultNativeState, "Cluster"), want: "Cluster"},
		"the cluster, as the values say":  {installed: Installation{NativeMode: "Cluster"}, state: state(DefaultNativeState, "Drawbridge"), want: "the cluster (native.controllers is Cluster)"},
		"not Drawbridge":                  {installed: Installation{NativeOff: true}, want: "not Drawbridge (native.controllers is Off)"},
		"nobody yet":                      {want: "nobody yet"},
		"it is not known":                 {installed: Installation{Unread: "forbidden"}, want: "not known"},
		"it is not known without a right": {refused: forbidden, want: "not known (" + forbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if tc.state != nil {
				objects = append(objects, tc.state)
			}
			asked := 0
			o := &Options{System: DefaultNamespace}
			got := o.InCharge(t.Context(), clusterOf(!tc.unserved, tc.refused, &asked, objects...), tc.installed)
			if tc.refused == nil && got != tc.want || !strings.HasPrefix(got, tc.want) {
				t.Errorf("want %q, have %q", tc.want, got)
			}
			if tc.unserved && asked > 0 {
				t.Errorf("%d calls where it is not served", asked)
			}
		})
	}
}

func TestNativeEvictionsAreReadWhereTheyCount(t *testing.T) {
	e := builder.NativeEviction("shop", "web", "uid").Obj()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "lifecycle.k8s.io", Resource: "evictions"}, "", errors.New("no"))
	for name, tc := range map[string]struct {
		served  bool
		refused error
		want    int
		calls   int
		warning string
	}{
		"they are served":             {served: true, want: 1, calls: 2},
		"they are not, and cost none": {},
		"who may not read them":       {served: true, refused: forbidden, calls: 2, warning: "Warning: native Evictions"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var said bytes.Buffer
			o := &Options{System: DefaultNamespace}
			o.ErrOut = &said
			got, err := o.NativeEvictionsIfAllowed(t.Context(), clusterOf(tc.served, tc.refused, &asked, e))
			if err != nil || len(got) != tc.want || asked != tc.calls || !strings.HasPrefix(said.String(), tc.warning) {
				t.Errorf("%d Evictions, %d calls, error %v, said %q; want %d, %d and %q", len(got), asked, err, said.String(), tc.want, tc.calls, tc.warning)
			}
		})
	}
}
