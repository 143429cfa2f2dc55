package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// States of a request, as sequences of writes to its status.
var (
	initialised = targets(interceptorA, interceptorB, interceptorC, imperative)
	aIsActive   = []change{together(initialised, active(interceptorA))}
	bIsActive   = []change{aIsActive[0], together(active(interceptorB), processed(interceptorA))}
	canceled    = []change{aIsActive[0], together(active(), processed(interceptorA),
		condition(v1alpha1.ConditionCanceled, metav1.ConditionTrue, v1alpha1.ReasonNoRequesters))}
)

// F3 STATUS: shape and transitions.
func TestConformance_F3(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)
	const (
		notNext   = "activeInterceptors may only have the item of targetInterceptors that follows the processed ones"
		notActive = "processedInterceptors may only get the name that was in activeInterceptors until now"
		mustEnter = "processedInterceptors must get the name that leaves activeInterceptors"
		neverLose = "processedInterceptors never loses a name"
		inOrder   = "processedInterceptors must be names of targetInterceptors, in the order of targetInterceptors"
		sameNames = "interceptors must have exactly one item for each name of targetInterceptors"
		onlyOne   = "only the item of the active interceptor may change"
	)

	// due gives the request a deadline, which may have come.
	due := func(er *v1alpha1.EvictionRequest) { er.Status.Deadline = at(0) }
	nodeLost := condition(v1alpha1.ConditionNodeLost, metav1.ConditionTrue, v1alpha1.ReasonNodeUnreachable)
	patient := together(initialised, within(interceptorA, time.Hour))
	cases := map[string]writeCase{
		"24 targetInterceptors can be set":                              {write: initialised, want: accepted},
		"24 targetInterceptors cannot be extended":                      {given: []change{targets(interceptorA)}, write: targets(interceptorA, interceptorB), want: "targetInterceptors is immutable once set"},
		"24 targetInterceptors cannot be shortened":                     {given: []change{initialised}, write: targets(interceptorA), want: "targetInterceptors is immutable once set"},
		"24 targetInterceptors cannot be reordered":                     {given: []change{initialised}, write: targets(interceptorB, interceptorA, interceptorC, imperative), want: "targetInterceptors is immutable once set"},
		"24 targetInterceptors cannot get a deadline afterwards":        {given: []change{initialised}, write: within(interceptorA, time.Hour), want: "targetInterceptors is immutable once set"},
		"24 the deadline of one of targetInterceptors cannot change":    {given: []change{patient}, write: within(interceptorA, 2*time.Hour), want: "targetInterceptors is immutable once set"},
		"24 with a deadline in targetInterceptors, reports are written": {given: []change{patient, active(interceptorA)}, write: report(interceptorA, func(s *v1alpha1.InterceptorStatus) { s.Message = "at work" }), want: accepted},
		"24 targetInterceptors cannot be skipped afterwards":            {given: []change{initialised}, write: skippable(interceptorA), want: "targetInterceptors is immutable once set"},
		"24 who can be skipped stays so":                                {given: []change{together(initialised, skippable(interceptorA))}, write: func(er *v1alpha1.EvictionRequest) { er.Status.TargetInterceptors[0].OnShortNotice = "" }, want: "targetInterceptors is immutable once set"},
		"24 what it needs stays, too":                                   {given: []change{together(initialised, skippable(interceptorA))}, write: func(er *v1alpha1.EvictionRequest) { er.Status.TargetInterceptors[0].Minimum.Duration++ }, want: "targetInterceptors is immutable once set"},
		"24 targetInterceptors cannot be removed":                       {given: []change{initialised}, write: targets(), want: "targetInterceptors is immutable once set"},
		"25 16 interceptors are accepted":                               {write: targets(manyNames(v1alpha1.MaxInterceptors)...), want: accepted},
		"25 17 interceptors are refused":                                {write: targets(manyNames(v1alpha1.MaxInterceptors + 1)...), want: "status.targetInterceptors: Too many: 17"},
		"25 duplicate targetInterceptors are refused":                   {write: targets(interceptorA, interceptorA), want: "Duplicate value"},
		"26 two active interceptors are refused":                        {write: together(initialised, active(interceptorA, interceptorB)), want: "status.activeInterceptors: Too many: 2"},
		"26 no active interceptor is accepted":                          {write: together(initialised, active()), want: accepted},
		"27 the first interceptor can be activated":                     {write: together(initialised, active(interceptorA)), want: accepted},
		"27 the second one cannot be the first":                         {write: together(initialised, active(interceptorB)), want: notNext},
		"27 the last one cannot be the first":                           {given: []change{initialised}, write: active(imperative), want: notNext},
		"27 an unknown one cannot be the first":                         {given: []change{initialised}, write: active("x.example.com"), want: notNext},
		"27 without targetInterceptors none is active":                  {write: active(interceptorA), want: notNext},
		"28 the next one can follow":                                    {given: aIsActive, write: together(active(interceptorB), processed(interceptorA)), want: accepted},
		"28 none can be skipped":                                        {given: aIsActive, write: together(active(interceptorC), processed(interceptorA)), want: notNext},
		"28 it cannot go back":                                          {given: bIsActive, write: active(interceptorA), want: notNext},
		"28 it cannot stay when it is processed":                        {given: aIsActive, write: processed(interceptorA), want: notNext},
		"28 an unknown one cannot follow":                               {given: aIsActive, write: together(active("x.example.com"), processed(interceptorA)), want: notNext},
		"28 after the last one nothing can follow": {
			given: []change{
				together(targets(imperative), active(imperative)),
				together(active(), processed(imperative)),
			},
			write: active(imperative), want: notNext,
		},
		"28 the next one can follow in a later write": {
			given: []change{aIsActive[0], together(active(), processed(interceptorA))},
			write: active(interceptorB), want: accepted,
		},
		"30 what was never active is not processed":              {given: aIsActive, write: together(active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 nothing is processed in the first write":             {write: together(initialised, active(interceptorB), processed(interceptorA)), want: notActive},
		"30 nothing is processed while nothing is active":        {given: []change{initialised}, write: processed(interceptorA), want: notActive},
		"30 but all are when a deadline gives the last the turn": {given: aIsActive, write: together(due, active(imperative), processed(interceptorA, interceptorB, interceptorC)), want: accepted},
		"30 even in the first write":                             {write: together(initialised, due, active(imperative), processed(interceptorA, interceptorB, interceptorC)), want: accepted},
		"30 a deadline gives the turn to no other":               {given: aIsActive, write: together(due, active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 but to EvictionBudgets": {
			given: []change{together(targets(interceptorA, v1alpha1.BudgetInterceptor, imperative), active(interceptorA))},
			write: together(due, active(v1alpha1.BudgetInterceptor), processed(interceptorA)), want: accepted,
		},
		"30 and to native responders": {
			given: []change{together(targets(interceptorA, interceptorB, v1alpha1.NativeInterceptor, imperative), active(interceptorA))},
			write: together(due, active(v1alpha1.NativeInterceptor), processed(interceptorA, interceptorB)), want: accepted,
		},
		"30 or skips those for whom it is too soon":             {given: []change{together(initialised, skippable(interceptorB), active(interceptorA))}, write: together(due, active(interceptorC), processed(interceptorA, interceptorB)), want: accepted},
		"30 and no others":                                      {given: []change{together(initialised, skippable(interceptorC), active(interceptorA))}, write: together(due, active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 and without a deadline nobody":                      {given: []change{together(initialised, skippable(interceptorB), active(interceptorA))}, write: together(active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 so does a lost node":                                {given: []change{together(initialised, onNodeLost(interceptorB, v1alpha1.NodeLostSkip), active(interceptorA))}, write: together(nodeLost, active(interceptorC), processed(interceptorA, interceptorB)), want: accepted},
		"30 even in the first write, of a lost node":            {write: together(initialised, onNodeLost(interceptorA, v1alpha1.NodeLostInterrupt), nodeLost, active(interceptorB), processed(interceptorA)), want: accepted},
		"30 but to no others":                                   {given: []change{together(initialised, onNodeLost(interceptorB, v1alpha1.NodeLostWait), active(interceptorA))}, write: together(nodeLost, active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 and not once it is back":                            {given: []change{together(initialised, onNodeLost(interceptorB, v1alpha1.NodeLostSkip), active(interceptorA))}, write: together(condition(v1alpha1.ConditionNodeLost, metav1.ConditionFalse, v1alpha1.ReasonNodeBack), active(interceptorC), processed(interceptorA, interceptorB)), want: notActive},
		"30 nor leaves it out":                                  {given: aIsActive, write: together(due, active(imperative), processed(interceptorA, interceptorC)), want: notNext},
		"30 what is unknown is not processed":                   {given: aIsActive, write: together(active(interceptorB), processed("x.example.com")), want: "processedInterceptors"},
		"31 a name is processed once":                           {given: bIsActive, write: processed(interceptorA, interceptorA), want: "Duplicate value"},
		"31 17 processed interceptors are refused":              {given: aIsActive, write: processed(manyNames(v1alpha1.MaxInterceptors + 1)...), want: "status.processedInterceptors: Too many: 17"},
		"32 a processed name cannot be removed":                 {given: bIsActive, write: processed(), want: neverLose},
		"32 a processed name cannot be replaced":                {given: bIsActive, write: together(active(), processed(interceptorB)), want: neverLose},
		"32 processed names cannot be reordered":                {given: append(bIsActive, together(active(interceptorC), processed(interceptorA, interceptorB))), write: processed(interceptorB, interceptorA), want: inOrder},
		"32 who leaves active enters processed":                 {given: aIsActive, write: active(), want: mustEnter},
		"32 who is followed enters processed":                   {given: aIsActive, write: active(interceptorB), want: mustEnter},
		"32 the active one can leave without a successor":       {given: aIsActive, write: together(active(), processed(interceptorA)), want: accepted},
		"33 interceptors without targetInterceptors is refused": {write: together(initialised, func(er *v1alpha1.EvictionRequest) { er.Status.TargetInterceptors = nil }), want: sameNames},
		"33 targetInterceptors without interceptors is refused": {write: together(initialised, reports()), want: sameNames},
		"33 interceptors with one fewer is refused":             {write: together(initialised, reports(interceptorA, interceptorB, interceptorC)), want: sameNames},
		"33 interceptors with another name is refused":          {write: together(targets(interceptorA), reports(interceptorB)), want: sameNames},
		"33 interceptors cannot get one more later":             {given: aIsActive, write: reports(interceptorA, interceptorB, interceptorC, imperative, "x.example.com"), want: sameNames},
		"33 interceptors cannot be removed later":               {given: aIsActive, write: reports(), want: sameNames},
		"34 the first initialisation may say something": {
			write: together(initialised, report(interceptorB, func(r *v1alpha1.InterceptorStatus) { r.Message = "ready" })), want: accepted,
		},
		"34 the active interceptor's item can change": {
			given: aIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = "working" }), want: accepted,
		},
		"34 the next interceptor's item cannot change": {
			given: aIsActive, write: report(interceptorB, func(r *v1alpha1.InterceptorStatus) { r.Message = "working" }), want: onlyOne,
		},
		"34 a processed interceptor's item cannot change": {
			given: bIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.CompletionTime = at(0) }), want: onlyOne,
		},
		"34 no item can change while none is active": {
			given: canceled, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = "still here" }), want: onlyOne,
		},
		"34 an item cannot change before anything is active": {
			given: []change{initialised}, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = "early" }), want: onlyOne,
		},
		"34 an item can change in the write that ends its turn": {
			given: aIsActive,
			write: together(report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.CompletionTime = at(0) }),
				active(interceptorB), processed(interceptorA)),
			want: accepted,
		},
		"35 the name of an item is immutable": {
			given: aIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Name = "x.example.com" }), want: "interceptors",
		},
		"35 the names of items are unique": {
			given: aIsActive, write: report(interceptorB, func(r *v1alpha1.InterceptorStatus) { r.Name = interceptorA }), want: "Duplicate value",
		},
		"36 a message of 32768 characters is accepted": {
			given: aIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = strings.Repeat("ä", 32768) }), want: accepted,
		},
		"36 a longer message is refused": {
			given: aIsActive, write: report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.Message = strings.Repeat("ä", 32769) }), want: "Too long",
		},
		"37 observedGeneration cannot decrease": {
			given: []change{observed(2)}, write: observed(1), want: "observedGeneration cannot decrease",
		},
		"37 observedGeneration can increase": {given: []change{observed(1)}, write: observed(2), want: accepted},
		"38 a foreign condition is accepted": {
			given: aIsActive, write: condition("example.com/Ready", metav1.ConditionFalse, "Waiting"), want: accepted,
		},
		"38 a foreign condition can change and go": {
			given: []change{condition("example.com/Ready", metav1.ConditionTrue, "Done")},
			write: func(er *v1alpha1.EvictionRequest) { er.Status.Conditions = nil }, want: accepted,
		},
		"38 two conditions of one type are refused": {
			write: func(er *v1alpha1.EvictionRequest) {
				condition("a", metav1.ConditionTrue, "R")(er)
				er.Status.Conditions = append(er.Status.Conditions, er.Status.Conditions[0])
			},
			want: "Duplicate value",
		},
		"39 Canceled cannot be reverted": {
			given: canceled, write: condition(v1alpha1.ConditionCanceled, metav1.ConditionFalse, "Again"), want: "final once True",
		},
		"39 Evicted cannot be reverted": {
			given: []change{condition(v1alpha1.ConditionEvicted, metav1.ConditionTrue, v1alpha1.ReasonPodDeleted)},
			write: condition(v1alpha1.ConditionEvicted, metav1.ConditionUnknown, "Again"), want: "final once True",
		},
		"39 Evicted cannot be removed": {
			given: []change{condition(v1alpha1.ConditionEvicted, metav1.ConditionTrue, v1alpha1.ReasonPodDeleted)},
			write: func(er *v1alpha1.EvictionRequest) { er.Status.Conditions = nil }, want: "final once True",
		},
		"39 Canceled cannot be exchanged for Evicted": {
			given: canceled,
			write: func(er *v1alpha1.EvictionRequest) {
				er.Status.Conditions[0].Type, er.Status.Conditions[0].Reason = v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted
			},
			want: "final once True",
		},
		"39 a condition that is not True can be set to True": {
			given: []change{condition(v1alpha1.ConditionEvicted, metav1.ConditionFalse, "NotYet")},
			write: condition(v1alpha1.ConditionEvicted, metav1.ConditionTrue, v1alpha1.ReasonPodDeleted), want: accepted,
		},
		"93 Evicted and Canceled cannot both be True": {
			given: canceled, write: condition(v1alpha1.ConditionEvicted, metav1.ConditionTrue, v1alpha1.ReasonPodDeleted), want: "cannot both be True",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tc.run(t, c, ns, true) })
	}

	t.Run("25 targetInterceptors are fully qualified domain names", func(t *testing.T) {
		for name, want := range domainNames("status.targetInterceptors[0].name") {
			t.Run(fmt.Sprintf("%.40q", name), func(t *testing.T) {
				writeCase{write: targets(name), want: want}.run(t, c, ns, true)
			})
		}
	})

	t.Run("35 names of interceptors are fully qualified domain names", func(t *testing.T) {
		for name, want := range domainNames("status.interceptors[0].name") {
			t.Run(fmt.Sprintf("%.40q", name), func(t *testing.T) {
				writeCase{write: targets(name), want: want}.run(t, c, ns, true)
			})
		}
	})

	t.Run("35, 36 the name of an item is required, and its message may be empty or left out", func(t *testing.T) {
		er := createRequest(t, c, ns)
		const status = `{"status":{"targetInterceptors":[{"name":"a.example.com"}],"interceptors":[%s]}}`
		for _, tc := range []struct{ item, want string }{
			{`{"message":""}`, "status.interceptors[0].name: Required value"},
			{`{"name":"a.example.com","message":null}`, accepted},
			{`{"name":"a.example.com"}`, accepted},
			{`{"name":"a.example.com","message":""}`, accepted},
		} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, tc.item))
			checkAnswer(t, c.Status().Patch(t.Context(), er.DeepCopy(), patch), tc.want)
		}
	})

	t.Run("24 a deadline of targetInterceptors is one that a registration can have", func(t *testing.T) {
		er := createRequest(t, c, ns)
		const status = `{"status":{"targetInterceptors":[{"name":"a.example.com","heartbeatDeadline":%s}],"interceptors":[{"name":"a.example.com"}]}}`
		const refused = "status.targetInterceptors[0].heartbeatDeadline"
		for deadline, want := range map[string]string{
			`"soon"`: refused, `""`: refused, `"1d"`: refused, `5`: refused, `"-1h"`: refused, `"119s"`: refused, `"24h1s"`: refused,
			`"2m"`: accepted, `"24h"`: accepted,
		} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, deadline))
			t.Run(deadline, func(t *testing.T) {
				checkAnswer(t, c.Status().Patch(t.Context(), er.DeepCopy(), patch, client.DryRunAll), want)
			})
		}
	})

	t.Run("24 so is what one of targetInterceptors needs", func(t *testing.T) {
		er := createRequest(t, c, ns)
		const status = `{"status":{"targetInterceptors":[{"name":"a.example.com","minimum":%s}],"interceptors":[{"name":"a.example.com"}]}}`
		const refused = "status.targetInterceptors[0].minimum"
		for minimum, want := range map[string]string{`"soon"`: refused, `"0s"`: refused, `5`: refused, `"24h1s"`: refused, `"1s"`: accepted, `"24h"`: accepted} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, minimum))
			t.Run(minimum, func(t *testing.T) {
				checkAnswer(t, c.Status().Patch(t.Context(), er.DeepCopy(), patch, client.DryRunAll), want)
			})
		}
	})

	t.Run("24, 33 an empty list is not a way to set targetInterceptors", func(t *testing.T) {
		er := createRequest(t, c, ns)
		for _, patch := range []string{`{"status":{"targetInterceptors":[]}}`, `{"status":{"interceptors":[]}}`} {
			err := c.Status().Patch(t.Context(), er.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
			checkAnswer(t, err, "should have at least 1 items")
		}
	})

	t.Run("24, 32, 39 the whole status cannot be removed", func(t *testing.T) {
		er := createRequest(t, c, ns)
		together(initialised, active(interceptorA))(er)
		if err := c.Status().Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))
		checkAnswer(t, c.Status().Patch(t.Context(), er.DeepCopy(), patch), "status cannot be removed")
	})

	// Who may write a status must not be able to store what our programs cannot read: one
	// such request would end the watch of all of them.
	t.Run("38 what a client of Go cannot read, or write again, is not stored", func(t *testing.T) {
		const status = `"status":"True","reason":"Mine","message":""`
		for name, patch := range map[string]string{
			"a time of the controller": `{"status":{"activationTime":ODD}}`,
			"the deadline":             `{"status":{"deadline":ODD}}`,
			"a time of a condition":    `{"status":{"conditions":[{"type":"Mine",` + status + `,"lastTransitionTime":ODD}]}}`,
			"times of a report": `{"status":{"targetInterceptors":[{"name":"` + imperative + `"}],"activeInterceptors":["` + imperative + `"],
				"interceptors":[{"name":"` + imperative + `","message":"","startTime":ODD,"heartbeatTime":ODD}]}}`,
		} {
			for _, odd := range []string{`"2026-11-22t10:21:11z"`, `"9999-12-31T23:59:59-12:00"`} {
				t.Run(name+" "+odd, func(t *testing.T) {
					er := createRequest(t, c, ns)
					err := c.Status().Patch(t.Context(), er.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(strings.ReplaceAll(patch, "ODD", odd))))
					if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "in RFC 3339") {
						t.Errorf("want a refusal of the time, got %v", err)
					}
				})
			}
		}
	})
	t.Run("38 nor is the deadline of a requester", func(t *testing.T) {
		for deadline, want := range map[string]string{
			"2026-11-22t10:21:11z": "RFC 3339", "1969-12-31T23:59:59Z": "this epoch", "soon": "date-time",
			"9999-12-31T23:59:59-12:00": "RFC 3339", // The year 10000 of UTC, which no client of Go can write again.
			"9999-12-30T23:59:59Z":      accepted, "2026-11-22T10:21:11.5+01:00": accepted,
		} {
			t.Run(deadline, func(t *testing.T) {
				mergePatch(t, c, createRequest(t, c, ns), fmt.Sprintf(`{"spec":{"requesters":[{"name":"drain.example.com","deadline":%q}]}}`, deadline), want)
			})
		}
	})
	t.Run("38 messages of conditions are at most 4096 characters long", func(t *testing.T) {
		for length, want := range map[int]string{4096: accepted, 4097: "at most 4096 characters"} {
			er := createRequest(t, c, ns)
			patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Mine","status":"True","reason":"Mine","message":%q,"lastTransitionTime":"2026-11-22T10:21:11Z"}]}}`,
				strings.Repeat("x", length))
			checkAnswer(t, c.Status().Patch(t.Context(), er.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), want)
		}
	})

	t.Run("34, 35 items are granular: an apply of the name alone wipes no report", func(t *testing.T) {
		er := createRequest(t, c, ns)
		together(initialised, active(interceptorA))(er)
		if err := c.Status().Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		times(at(0), at(0), nil)(er)
		if err := c.Status().Update(t.Context(), er, client.FieldOwner("interceptor")); err != nil {
			t.Fatal(err)
		}
		status := applyv1alpha1.EvictionRequestStatus().
			WithInterceptors(applyv1alpha1.InterceptorStatus().WithName(interceptorA).WithMessage("hello"))
		err := c.Status().Apply(t.Context(), applyv1alpha1.EvictionRequest(er.Name, ns).WithStatus(status),
			client.FieldOwner("controller"), client.ForceOwnership)
		if err != nil {
			t.Fatal(err)
		}
		stored := &v1alpha1.EvictionRequest{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), stored); err != nil {
			t.Fatal(err)
		}
		want := er.DeepCopy()
		want.Status.Interceptors[0].Message = "hello"
		if diff := cmp.Diff(want.Status.Interceptors, stored.Status.Interceptors); diff != "" {
			t.Errorf("interceptors (-want +got):\n%s", diff)
		}
	})

	t.Run("40 a status write changes neither spec nor labels", func(t *testing.T) {
		er := createRequest(t, c, ns, func(er *v1alpha1.EvictionRequest) { er.Labels = map[string]string{"app": "web"} })
		sent := er.DeepCopy()
		sent.Labels = map[string]string{"app": "other"}
		together(requesters("x.example.com"), initialised)(sent)
		if err := c.Status().Update(t.Context(), sent); err != nil {
			t.Fatal(err)
		}
		stored := &v1alpha1.EvictionRequest{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), stored); err != nil {
			t.Fatal(err)
		}
		if len(stored.Status.TargetInterceptors) == 0 {
			t.Fatal("the status was not written")
		}
		if diff := cmp.Diff(er.Spec, stored.Spec); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(er.Labels, stored.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if stored.Generation != er.Generation {
			t.Errorf("a status write moved the generation from %d to %d", er.Generation, stored.Generation)
		}
	})

	t.Run("40 a write of labels does not move the generation", func(t *testing.T) {
		er := createRequest(t, c, ns)
		before := er.Generation
		er.Labels = map[string]string{"app": "web"}
		if err := c.Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		if er.Generation != before {
			t.Errorf("the generation moved from %d to %d", before, er.Generation)
		}
	})
}

// reports sets interceptors without regard to targetInterceptors.
func reports(names ...string) change {
	return func(er *v1alpha1.EvictionRequest) {
		er.Status.Interceptors = nil
		for _, name := range names {
			er.Status.Interceptors = append(er.Status.Interceptors, v1alpha1.InterceptorStatus{Name: name})
		}
	}
}

// observed sets observedGeneration.
func observed(generation int64) change {
	return func(er *v1alpha1.EvictionRequest) { er.Status.ObservedGeneration = generation }
}
