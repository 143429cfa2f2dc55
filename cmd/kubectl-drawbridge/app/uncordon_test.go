package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestHowANodeIsReleased(t *testing.T) {
	byLabel := func(name string) *builder.NodeMaintenanceWrapper {
		return builder.NodeMaintenance(name).Term("pool", corev1.NodeSelectorOpIn, "blue")
	}
	noted := func(names string) *builder.NodeWrapper {
		return builder.Node("n1").Annotation(v1alpha1.MaintenancesAnnotation, names)
	}
	cases := map[string]struct {
		node  *builder.NodeWrapper
		all   []*builder.NodeMaintenanceWrapper
		whole bool
		want  []string
		err   string
	}{
		"nobody has it":                              {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("other").Nodes("n2")}},
		"one for it alone is deleted":                {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1")}, want: []string{"m deleted"}},
		"one that names others goes on without it":   {node: builder.Node("n1"), all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m goes on with [n2]"}},
		"or is deleted as a whole":                   {node: builder.Node("n1"), whole: true, all: []*builder.NodeMaintenanceWrapper{builder.NodeMaintenance("m").Nodes("n1", "n2")}, want: []string{"m deleted"}},
		"one that selects by labels needs the whole": {node: noted("m=Drain"), all: []*builder.NodeMaintenanceWrapper{byLabel("m")}, err: "selects node n1 by labels"},
		"and gets it":                                {node: noted("a=Cordon,m=Drain"), whole: true, all: []*builder.NodeMaintenanceWrapper{byLabel("m"), byLabel("x")}, want: []string{"m deleted"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var maintenances []v1alpha1.NodeMaintenance
			for _, w := range tc.all {
				maintenances = append(maintenances, *w.Obj())
			}
			all, err := releases(tc.node.Obj(), maintenances, tc.whole)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			var got []string
			for _, r := range all {
				if r.selector == nil {
					got = append(got, r.maintenance.Name+" deleted")
					continue
				}
				rest := v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{NodeSelector: *r.selector}}
				got = append(got, fmt.Sprintf("%s goes on with %v", r.maintenance.Name, namedNodes(&rest)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("releases (-want +got):\n%s", diff)
			}
		})
	}
}

// Who may uncordon a node need not be allowed to look at requests.
func TestWhatAnUncordonSaysOfEvictionsThatGoOn(t *testing.T) {
	request := func(name, node string, cancellation v1alpha1.CancellationPolicy) *v1alpha1.EvictionRequest {
		return builder.EvictionRequest("shop", name, types.UID("uid-"+name)).NodeName(node).Interceptors("a.example.com").
			Report("a.example.com", func(s *v1alpha1.InterceptorStatus) { s.Cancellation = cancellation }).Obj()
	}
	objects := []client.Object{
		request("gone-on", "n1", v1alpha1.CancellationForbidden), request("elsewhere", "n2", v1alpha1.CancellationForbidden), request("canceled", "n1", v1alpha1.CancellationAllowed),
	}
	broken := errors.New("connection refused")
	cases := map[string]struct {
		refusal error
		want    string
		err     error
	}{
		"it names the pods":                {want: "The eviction of pod shop/gone-on continues nevertheless: interceptor a.example.com is past the point of no return.\n"},
		"nothing, if it may not look":      {refusal: apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "", nil)},
		"that it does not know, otherwise": {refusal: broken, err: broken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if tc.refusal != nil {
						return tc.refusal
					}
					return c.List(ctx, list, options...)
				},
			}).Build()
			var said bytes.Buffer
			o := cli.DefaultOptions()
			o.ErrOut = &said
			err := commands{Options: o}.tellForbidden(t.Context(), &cli.Connection{Client: c}, "n1")
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, said.String()); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}
