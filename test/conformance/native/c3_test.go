package native

import (
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// C.3 Which states may follow which.
func TestNative_C3(t *testing.T) {
	const (
		next      = "because this responder is next in line"
		waiting   = "because the previously active has not finished processing"
		finished  = "because the eviction request has finished processing"
		frozen    = "because final state is immutable"
		endOfTurn = "because this responder must reach a final state"
		stay      = "must stay Active"
		nothing   = "cannot become Completed"
		immutable = "field is immutable"
	)
	// end ends the turn of one and begins that of another.
	end := func(name string, as lifecyclev1alpha1.ResponderStateType, successor string) change {
		return together(state(name, as), turn(successor))
	}
	noRequesters := condition(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionTrue, lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters)
	done := completion(first, 0)
	// secondsTurn has had the first one complete.
	secondsTurn := []change{begun, done, end(first, completed, second)}
	// exhausted has one responder, which has completed.
	alone := together(plan(100, evictorName), turn(evictorName))
	exhausted := []change{alone, completion(evictorName, 0), state(evictorName, completed)}
	// silent is just long enough for the server.
	silent := deadline - skew + time.Second

	runStatusCases(t, map[string]statusCase{
		"N32 the first by priority begins, wherever it stands":    {write: begun},
		"N32 the second does not":                                 {write: together(three, turn(second)), want: next},
		"N32 nobody at all is refused":                            {write: three, want: next},
		"N32 two at once are refused":                             {write: together(begun, turn(second)), want: waiting},
		"N32 nobody is final at once":                             {write: together(three, state(first, completed), started(first, 0), done), want: next},
		"N33 of equal priorities the end of the domain decides":   {write: together(plan(2000, "a.example.org/x", "z.example.com/x"), turn("z.example.com/x"))},
		"N33 not its beginning":                                   {write: together(plan(2000, "a.example.org/x", "z.example.com/x"), turn("a.example.org/x")), want: next},
		"N33 a shorter domain comes first":                        {write: together(plan(2000, "a.example.com/a", "example.com/z"), turn("example.com/z"))},
		"N33 of equal domains the key decides":                    {write: together(plan(2000, "example.com/b", "example.com/a"), turn("example.com/a"))},
		"N33 priority comes before names":                         {write: together(plan(2000, "example.com/a"), plan(2001, "example.org/z"), turn("example.org/z"))},
		"N34 with Failed nobody begins":                           {write: together(three, failed)},
		"N34 with TargetEvicted nobody begins":                    {write: together(three, evicted)},
		"N34 with a final condition the first does not begin":     {write: together(begun, failed), want: finished},
		"N34 with a final condition nobody is final either":       {write: together(three, failed, state(first, canceled)), want: finished},
		"N35 who has completed keeps that state":                  {given: secondsTurn, write: state(first, interrupted), want: frozen},
		"N35 who has completed does not begin again":              {given: secondsTurn, write: state(first, active), want: frozen},
		"N35 nor in the write that ends the turn of the next":     {given: append(secondsTurn, completion(second, 0)), write: together(end(second, completed, evictorName), state(first, canceled)), want: frozen},
		"N36 the second does not begin beside the first":          {given: []change{begun}, write: turn(second), want: waiting},
		"N36 nor is it completed":                                 {given: []change{begun}, write: together(started(second, 0), completion(second, 0), state(second, completed)), want: waiting},
		"N36 nor interrupted":                                     {given: []change{begun}, write: state(second, interrupted), want: waiting},
		"N36 the third does not begin for the second":             {given: []change{begun, done}, write: end(first, completed, evictorName), want: next},
		"N37 the second follows":                                  {given: []change{begun, done}, write: end(first, completed, second)},
		"N37 the third follows":                                   {given: append(secondsTurn, completion(second, 0)), write: end(second, completed, evictorName)},
		"N37 a turn does not end without the next":                {given: []change{begun, done}, write: state(first, completed), want: next},
		"N37 a turn does not end as Inactive":                     {given: []change{begun, done}, write: end(first, inactive, second), want: endOfTurn},
		"N37 the last one ends without a next, and a condition":   {given: exhausted[:2], write: state(evictorName, completed)},
		"N38 Completed needs completionTime":                      {given: []change{begun}, write: end(first, completed, second), want: nothing},
		"N38 after the deadline, too":                             {given: []change{begun}, age: deadline, write: end(first, completed, second), want: nothing},
		"N39 nobody is interrupted at once":                       {given: []change{begun}, write: end(first, interrupted, second), want: stay},
		"N39 nor after 19 minutes":                                {given: []change{begun}, age: 19 * time.Minute, write: end(first, interrupted, second), want: stay},
		"N39 but after 20 minutes less 30 s":                      {given: []change{begun}, age: silent, write: end(first, interrupted, second)},
		"N39 a heartbeat counts, not the start":                   {given: []change{begun, heartbeat(first, near)}, age: silent - time.Minute, write: end(first, interrupted, second), want: stay},
		"N39 and 20 minutes less 30 s after it":                   {given: []change{begun, heartbeat(first, near)}, age: silent + near, write: end(first, interrupted, second)},
		"N39 canceled is no other thing than interrupted":         {given: []change{begun}, write: end(first, canceled, second), want: stay},
		"N39 who has completed may leave at once, as interrupted": {given: []change{begun, done}, write: end(first, interrupted, second)},
		"N40 nobody wants it":                                     {given: []change{begun}, write: together(state(first, canceled), noRequesters)},
		"N40 nobody wants it on the turn of the second":           {given: secondsTurn, write: together(state(second, canceled), noRequesters)},
		"N40 the pod is gone":                                     {given: []change{begun}, write: together(state(first, interrupted), evicted)},
		"N40 the pod is gone after a heartbeat":                   {given: []change{begun, heartbeat(first, 0)}, write: together(state(first, interrupted), evicted)},
		"N40 the pod is gone and the work done":                   {given: []change{begun, done}, write: together(state(first, completed), evicted)},
		"N41 nobody stays Active":                                 {given: []change{begun}, write: evicted, want: finished},
		"N41 nobody becomes Active":                               {given: []change{begun, done}, write: together(end(first, completed, second), evicted), want: finished},
		"N41 nobody becomes Active later":                         {given: []change{begun, together(state(first, interrupted), evicted)}, write: turn(second), want: frozen},
		"N42 the last one keeps its state":                        {given: exhausted, write: state(evictorName, interrupted), want: frozen},
		"N42 the last one does not begin again":                   {given: exhausted, write: state(evictorName, active), want: frozen},
		"N42 a final condition follows":                           {given: exhausted, write: failed},
		"N42 so does evicted":                                     {given: exhausted, write: evicted},
		"N43 a report and the end of a turn are two writes":       {given: []change{begun}, write: together(done, end(first, completed, second)), want: immutable},
		"N43 so they are with a final condition":                  {given: []change{begun}, write: together(done, state(first, completed), evicted), want: immutable},
		"N43 who has had its turn reports nothing":                {given: secondsTurn, write: heartbeat(first, near), want: immutable},
		"N43 who has had no turn reports nothing":                 {given: []change{begun}, write: started(second, 0), want: immutable},
		"N43 who begins may report in the same write":             {given: []change{begun, done}, write: together(end(first, completed, second), heartbeat(second, 0))},
	})
}
