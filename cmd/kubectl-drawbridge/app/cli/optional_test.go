package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Budgets and hooks are kinds that a cluster may not have.
func TestKindsThatCannotBeRead(t *testing.T) {
	resource := v1alpha1.SchemeGroupVersion.WithResource("some").GroupResource()
	kinds := map[string]struct {
		warning   string
		list      func(context.Context, *Connection) (int, error)
		ifAllowed func(context.Context, *Options, *Connection) (int, error)
	}{
		"evictionbudgets": {
			"Warning: EvictionBudgets are left out: list evictionbudgets: ",
			func(ctx context.Context, c *Connection) (int, error) {
				found, err := c.EvictionBudgets(ctx)
				return len(found), err
			},
			func(ctx context.Context, o *Options, c *Connection) (int, error) {
				found, err := o.EvictionBudgetsIfAllowed(ctx, c)
				return len(found), err
			},
		},
		"evacuationhooks": {
			"Warning: hooks are left out: list evacuationhooks: ",
			func(ctx context.Context, c *Connection) (int, error) {
				found, err := c.Hooks(ctx)
				return len(found), err
			},
			func(ctx context.Context, o *Options, c *Connection) (int, error) {
				found, err := o.HooksIfAllowed(ctx, c)
				return len(found), err
			},
		},
	}
	cases := map[string]struct {
		err                error
		want               int
		wantErr, wantAsked bool
		warned             bool
	}{
		"they can":                 {want: 1},
		"the kind is not known":    {err: &meta.NoKindMatchError{}},
		"the API server has a 404": {err: apierrors.NewNotFound(resource, "")},
		"forbidden: go on without": {err: apierrors.NewForbidden(resource, "", errors.New("no")), wantErr: true, warned: true},
		"the API server is unwell": {err: apierrors.NewServiceUnavailable("down"), wantErr: true, wantAsked: true},
	}
	for kind, k := range kinds {
		for name, tc := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) {
				with := fake.NewClientBuilder().WithScheme(Scheme).WithObjects(
					builder.EvictionBudget("shop", "ingester", "app", "db").Obj(), builder.EvacuationHook("shop", "dump").Obj(),
				).Build()
				c := &Connection{Client: interceptor.NewClient(with, interceptor.Funcs{
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						if tc.err != nil {
							return tc.err
						}
						return c.List(ctx, list, opts...)
					},
				})}
				if got, err := k.list(t.Context(), c); got != tc.want || (err != nil) != tc.wantErr {
					t.Errorf("got %d and error %v, want %d, error %t", got, err, tc.want, tc.wantErr)
				}
				warnings := &bytes.Buffer{}
				o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: warnings}}
				if got, err := k.ifAllowed(t.Context(), o, c); got != tc.want || (err != nil) != tc.wantAsked {
					t.Errorf("if allowed: got %d and error %v, want %d, error %t", got, err, tc.want, tc.wantAsked)
				}
				if warned := strings.HasPrefix(warnings.String(), k.warning); warned != tc.warned || !warned && warnings.Len() > 0 {
					t.Errorf("warned %q, want %q: %t", warnings, k.warning, tc.warned)
				}
			})
		}
	}
}
