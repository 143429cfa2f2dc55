package drain

import (
	"errors"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestFates(t *testing.T) {
	owned := builder.Pod("shop", "web").Node("node-1").OwnedBy("ReplicaSet", "web").Ready().Obj()
	three, none := 3*time.Minute, time.Duration(0)
	warned := func(by string) *why.DryRun {
		return &why.DryRun{Result: translate.ResultEvicted, Warnings: []string{"drawbridge: a real eviction of pod shop/web would be answered " + by}}
	}
	last := builder.EvictionRequest("shop", "web", "uid").Requesters("r.example.com").Interceptors("a.example.com").Processed("a.example.com").
		Active(v1alpha1.ImperativeEvictionInterceptor, now).Obj()
	refused := builder.EvictionRequest("shop", "web", "uid").Canceled(v1alpha1.ReasonValidationFailed, time.Time{}).Obj()
	responding := builder.NativeEviction("shop", "web", "uid").Responders("a.example.com/a").State("a.example.com/a", lifecyclev1alpha1.ResponderStateActive, now).Obj()
	cases := map[string]struct {
		in   fateInput
		want string
	}{
		"at once":                          {fateInput{pod: owned, wait: &none}, "be evicted at once"},
		"left to its owner":                {fateInput{pod: owned, wait: &three}, "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted"},
		"nobody knows for how long":        {fateInput{pod: owned}, "be evicted, after maintenance.evacuationWait, which could not be read"},
		"intercepted":                      {fateInput{pod: owned, interceptors: []string{"a.example.com", "b.example.com"}}, "be evicted after a.example.com, then b.example.com"},
		"a budget refuses":                 {fateInput{pod: owned, wait: &none, budgets: []why.Budget{{Name: "web"}}}, "be evicted at once; currently budget web refuses it"},
		"a budget can never allow":         {fateInput{pod: owned, wait: &none, budgets: []why.Budget{{Name: "web", Never: "can never allow a disruption (maxUnavailable is 0)"}}}, "be evicted at once; budget web can never allow a disruption (maxUnavailable is 0)"},
		"the guard is ours":                {fateInput{pod: owned, interceptors: []string{"a.example.com"}, budgets: []why.Budget{{Name: "guard", Guard: true}}}, "be evicted after a.example.com"},
		"two budgets":                      {fateInput{pod: owned, wait: &none, budgets: []why.Budget{{Name: "a", Allows: true}, {Name: "b", Allows: true}}}, "be evicted at once; currently it is refused: 2 budgets select it (a, b), and the eviction API supports one"},
		"an interceptor would refuse":      {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: its disks are local")}, "be evicted after a.example.com; currently it is refused: its disks are local"},
		"interceptors come first":          {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: Eviction triggered evacuation: accepted, the pod's interceptors come first")}, "be evicted after a.example.com"},
		"too many begin":                   {fateInput{pod: owned, interceptors: []string{"a.example.com"}, dryRun: warned("429: Eviction could not be started yet: too many")}, "be evicted after a.example.com"},
		"it is held in the last stage":     {fateInput{pod: owned, request: last, dryRun: warned("429: Eviction triggered evacuation: the guard of the pod is closed")}, "be evicted, as is requested already; currently it is refused: the guard of the pod is closed"},
		"a native responder has its turn":  {fateInput{pod: owned, request: builder.EvictionRequest("shop", "db-0", "uid").Interceptors(v1alpha1.NativeInterceptor).Active(v1alpha1.NativeInterceptor, now).Obj(), eviction: responding}, "be evicted, as is requested already: waiting for a.example.com/a (1 of 2)"},
		"one that was only asked natively": {fateInput{pod: owned, interceptors: []string{v1alpha1.NativeInterceptor}, eviction: responding}, "be evicted, as is requested already: waiting for a.example.com/a (1 of 2)"},
		"a native one that has ended":      {fateInput{pod: owned, interceptors: []string{"a.example.com"}, eviction: builder.NativeEviction("shop", "db-0", "uid").Ended(lifecyclev1alpha1.EvictionConditionFailed, now).Obj()}, "be evicted after a.example.com"},
		"something else refuses":           {fateInput{pod: owned, wait: &none, dryRun: &why.DryRun{Result: translate.ResultWebhook, Detail: "no"}}, "be evicted at once; currently it is refused: no"},
		"its request may not be made":      {fateInput{pod: owned, wait: &none, unwritten: &refusals.Refusal{Cause: "Quota", Words: "exceeded quota: none"}}, "be evicted at once; currently it cannot be requested: a quota of the namespace refuses it: exceeded quota: none"},
		"its request was refused":          {fateInput{pod: owned, request: refused}, "block the drain: its eviction was refused: "},
		"a pod of a DaemonSet":             {fateInput{pod: builder.Pod("shop", "web").DaemonSet("agent").Obj()}, "stay: DaemonSet agent"},
		"nobody would make it again":       {fateInput{pod: builder.Pod("shop", "web").Obj(), maintenance: builder.NodeMaintenance("m").Keeps().Obj()}, "be kept, and block the drain: no controller (see --force)"},
		"interceptors may not be known":    {fateInput{pod: owned, unsure: errors.New("forbidden")}, "be evicted after interceptors that are not known: forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.in.maintenance == nil {
				tc.in.maintenance = builder.NodeMaintenance("m").Obj()
			}
			if got := fateOf(tc.in).would; got != tc.want {
				t.Errorf("would %q, want %q", got, tc.want)
			}
		})
	}
}
