package charts_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What the rules of a request cost the API server in each write of its status, as the status
// goes through the first turn of a plan. An interceptor that was planned and waits costs as
// much in every write as one that works, so a long plan is limited, too.
func TestTheRulesOfARequestAllocateLittle(t *testing.T) {
	limits := map[string]allocation.Cost{
		"2: the first turn":       {Allocs: 1_930, Bytes: 194_000},
		"2: a report":             {Allocs: 4_100, Bytes: 424_000},
		"2: the next one's turn":  {Allocs: 5_300, Bytes: 547_000},
		"16: the first turn":      {Allocs: 6_080, Bytes: 607_000},
		"16: a report":            {Allocs: 17_450, Bytes: 1_866_000},
		"16: the next one's turn": {Allocs: 19_400, Bytes: 2_040_000},
	}
	structural := structuralSchema(t, "drawbridge/files/crds/drawbridge.dev_evictionrequests.yaml")
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	for _, length := range []int{2, 16} {
		before := aRequest(t, v1alpha1.EvictionRequestStatus{})
		delete(before, "status")
		for _, step := range statusSteps(length) {
			after, name := aRequest(t, step.status), fmt.Sprintf("%d: %s", length, step.name)
			t.Run(name, func(t *testing.T) {
				allocation.AtMost(t, limits[name], func() {
					correlation := common.NewCorrelatedObject(after, before, &model.Structural{Structural: structural})
					errs, _ := rules.Validate(context.Background(), nil, structural, after, before, math.MaxInt64, cel.WithRatcheting(correlation))
					if len(errs) > 0 {
						t.Fatal(errs.ToAggregate())
					}
				})
			})
			before = after
		}
	}
}

type statusStep struct {
	name   string
	status v1alpha1.EvictionRequestStatus
}

// statusSteps are what the status of a request is one after the other, with a plan of that
// many interceptors: at least 2.
func statusSteps(length int) []statusStep {
	at := metav1.NewTime(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	var status v1alpha1.EvictionRequestStatus
	for i := range length - 1 {
		status.TargetInterceptors = append(status.TargetInterceptors, v1alpha1.Interceptor{Name: fmt.Sprintf("n%d.example.com", i)})
	}
	status.TargetInterceptors = append(status.TargetInterceptors, v1alpha1.Interceptor{Name: v1alpha1.ImperativeEvictionInterceptor})
	for _, planned := range status.TargetInterceptors {
		status.Interceptors = append(status.Interceptors, v1alpha1.InterceptorStatus{Name: planned.Name})
	}
	status.ObservedGeneration, status.NodeName, status.ActivationTime = 1, "node-1", &at
	status.ActiveInterceptors = []string{status.TargetInterceptors[0].Name}
	status.Summary = &v1alpha1.EvictionRequestSummary{State: v1alpha1.StateIntercepting, Interceptor: status.ActiveInterceptors[0], Requesters: 1}
	steps := []statusStep{{"the first turn", status}}

	status.Interceptors = slices.Clone(status.Interceptors)
	first := &status.Interceptors[0]
	first.StartTime, first.HeartbeatTime, first.CompletionTime, first.Message = &at, &at, &at, "Migrated."
	steps = append(steps, statusStep{"a report", status})

	status.ProcessedInterceptors, status.ActiveInterceptors = status.ActiveInterceptors, []string{status.TargetInterceptors[1].Name}
	return append(steps, statusStep{"the next one's turn", status})
}

// aRequest is what the API server validates.
func aRequest(t *testing.T, status v1alpha1.EvictionRequestStatus) map[string]any {
	t.Helper()
	er := builder.EvictionRequest("shop", "web-7c6f6d9b5d-x2x4z", "2f9d1a4c-6c1b-4f0e-9d43-0c8f7f4b8a11").Requesters("drain.example.com").Label("app", "web").Obj()
	er.Status = status
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(er)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
