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

func TestEvictionBudgetsThatCannotBeRead(t *testing.T) {
	resource := v1alpha1.SchemeGroupVersion.WithResource("evictionbudgets").GroupResource()
	cases := map[string]struct {
		err                error
		want               int
		wantErr, wantAsked bool
		warning            string
	}{
		"they can":                 {want: 1},
		"the kind is not known":    {err: &meta.NoKindMatchError{}},
		"the API server has a 404": {err: apierrors.NewNotFound(resource, "")},
		"forbidden: go on without": {err: apierrors.NewForbidden(resource, "", errors.New("no")), wantErr: true, warning: "Warning: EvictionBudgets are left out: list evictionbudgets: "},
		"the API server is unwell": {err: apierrors.NewServiceUnavailable("down"), wantErr: true, wantAsked: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			with := fake.NewClientBuilder().WithScheme(Scheme).WithObjects(builder.EvictionBudget("shop", "ingester", "app", "db").Obj()).Build()
			c := &Connection{Client: interceptor.NewClient(with, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.err != nil {
						return tc.err
					}
					return c.List(ctx, list, opts...)
				},
			})}
			got, err := c.EvictionBudgets(t.Context())
			if len(got) != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("got %d budgets and error %v, want %d, error %t", len(got), err, tc.want, tc.wantErr)
			}
			warnings := &bytes.Buffer{}
			o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: warnings}}
			got, err = o.EvictionBudgetsIfAllowed(t.Context(), c)
			if len(got) != tc.want || (err != nil) != tc.wantAsked {
				t.Errorf("if allowed: got %d budgets and error %v, want %d, error %t", len(got), err, tc.want, tc.wantAsked)
			}
			if !strings.HasPrefix(warnings.String(), tc.warning) || tc.warning == "" && warnings.Len() > 0 {
				t.Errorf("warned %q, want %q", warnings, tc.warning)
			}
		})
	}
}
