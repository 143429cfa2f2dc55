package app

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

// ingesters lets a zone go, while another one waits.
func ingesters() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("mimir", "ingester", "app", "ingester").ByPodLabel("zone", 1).MaxUnavailable("50%").Observed().
		Counts(12, 2, 3).Group("a", 4, 2, 0).Group("", 1, 0, 0).Group("b", 4, 0, 3).
		Grant("ingester-a-0", "uid-a-0", "a", ago(90*time.Second)).Grant("ingester-a-1", "uid-a-1", "a", ago(time.Minute)).
		Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, v1alpha1.ReasonGroupsDisrupted, "EvictionBudget ingester: group \"a\" is disrupted\x1b[31m, and at most 1 may be at a time.").Obj()
}

func nightly() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("shop", "night", "app", "db").Observed().Counts(3, 0, 0).Group("", 3, 0, 0).
		Window("0 22 * * *", time.Hour).Opening(now.Add(10*time.Hour), now.Add(11*time.Hour)).Obj()
}

func daily() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("shop", "day", "app", "db").Observed().Counts(3, 1, 0).Group("", 3, 0, 0).
		Window("0 9 * * *", 8*time.Hour).Opening(ago(3*time.Hour), now.Add(5*time.Hour)).Obj()
}

func badBudget() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("depot", "bad", "app", "db").Observed().Counts(2, 0, 0).Group("", 2, 0, 0).
		Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow, "spec.windows[0]: schedule \"x\" cannot be read").Obj()
}

func unseenBudget() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("shop", "unseen", "app", "db").Obj()
}

func emptyBudget() *v1alpha1.EvictionBudget {
	return builder.EvictionBudget("shop", "empty", "app", "none").Observed().Counts(0, 0, 0).Obj()
}

func TestBudgetsArePrinted(t *testing.T) {
	some := []v1alpha1.EvictionBudget{*unseenBudget(), *nightly(), *ingesters(), *daily(), *badBudget()}
	cases := map[string]struct {
		budgets           []v1alpha1.EvictionBudget
		format, namespace string
		file              string
	}{
		"none of a namespace": {namespace: "shop", file: "budgets-none.golden.txt"},
		"none at all":         {file: "budgets-none-anywhere.golden.txt"},
		"some":                {budgets: some, file: "budgets.golden.txt"},
		"some, wide":          {budgets: some, format: cli.FormatWide, file: "budgets-wide.golden.txt"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.Output = tc.format
			if err := o.printBudgets(listing.Budgets(tc.budgets), tc.namespace); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, tc.file, out.String())
		})
	}
}

func TestABudgetIsPrinted(t *testing.T) {
	objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(ingesters(), nightly(), badBudget(), unseenBudget(), emptyBudget()).Build()
	cases := map[string]struct{ namespace, name, format, file, wantErr string }{
		"by zones":             {namespace: "mimir", name: "ingester", file: "budget.golden.txt"},
		"for programs":         {namespace: "mimir", name: "ingester", format: cli.FormatYAML, file: "budget.golden.yaml"},
		"with a window":        {namespace: "shop", name: "night", file: "budget-window.golden.txt"},
		"that is refused":      {namespace: "depot", name: "bad", file: "budget-refused.golden.txt"},
		"that nobody has seen": {namespace: "shop", name: "unseen", file: "budget-unseen.golden.txt"},
		"that covers nothing":  {namespace: "shop", name: "empty", file: "budget-empty.golden.txt"},
		"that does not exist":  {namespace: "shop", name: "ingester", wantErr: `there is no EvictionBudget "ingester" in namespace "shop"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, _ := testOptions()
			o.Output = tc.format
			err := o.budget(t.Context(), &cli.Connection{Client: objects, Namespace: tc.namespace}, tc.name)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, tc.file, out.String())
		})
	}
}

func TestBudgetsAreOneInterceptor(t *testing.T) {
	o, out, _ := testOptions()
	_, requests := state()
	active := builder.EvictionRequest("shop", "db-9", "uid-9").Requesters("r.example.com").Interceptors("a.example.com", v1alpha1.BudgetInterceptor).
		Processed("a.example.com").Active(v1alpha1.BudgetInterceptor, now)
	waiting := builder.EvictionRequest("shop", "db-8", "uid-8").Requesters("r.example.com").Interceptors("a.example.com", v1alpha1.BudgetInterceptor).Active("a.example.com", now)
	requests = append(requests, *active.Obj(), *waiting.Obj())
	a := builder.EvictionInterceptor("a.example.com").Obj()
	all := listing.Interceptors([]v1alpha1.EvictionInterceptor{*a}, nil, []v1alpha1.EvictionBudget{*nightly(), *ingesters(), *badBudget()}, requests)
	if err := o.printInterceptors(all); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "interceptors-budgets.golden.txt", out.String())
	if diff := cmp.Diff(3, all[1].Budgets); diff != "" {
		t.Errorf("budgets of %s (-want +got):\n%s", all[1].Name, diff)
	}
}

// The interceptor of the budgets is no object, so -o name leaves it out.
func TestOnlyObjectsAreNamed(t *testing.T) {
	o, out, _ := testOptions()
	o.Output = cli.FormatName
	objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(builder.EvictionInterceptor("a.example.com").Obj(), dumpHook(), nightly()).Build()
	if err := o.interceptors(t.Context(), &cli.Connection{Client: objects}); err != nil {
		t.Fatal(err)
	}
	want := "evacuationhook.drawbridge.dev/dump\nevictioninterceptor.drawbridge.dev/a.example.com\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
