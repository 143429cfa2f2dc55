package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// anew is our request with one interceptor of ours, in the turn of that name, after the native
// responders had theirs.
func anew(turn string, answered bool, requesters ...string) *v1alpha1.EvictionRequest {
	er := asksUs("er-1", requesters...)
	er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: v1alpha1.NativeInterceptor}, {Name: "a.example.com"}, {Name: v1alpha1.ImperativeEvictionInterceptor}}
	er.Status.ActiveInterceptors = []string{turn}
	for _, i := range er.Status.TargetInterceptors {
		if i.Name == turn {
			break
		}
		er.Status.ProcessedInterceptors = append(er.Status.ProcessedInterceptors, i.Name)
	}
	if answered {
		er.Status.Interceptors[0].CompletionTime = new(metav1.NewTime(began))
	}
	return er
}

// Everybody asked natively has left after the native responders had their turn, and our request
// goes on. When somebody asks natively once more, another Eviction begins, whose responders must
// not work beside our interceptors.
func TestNative_AnEvictionThatBeginsAnew(t *testing.T) {
	const drain = "drain.example.com"
	waits := "pod-1-web:"
	works := "pod-1-web: " + first + "=Active " + v1alpha1.NativeResponder + "=Inactive " + theEvictor + "=Inactive" + runs
	for _, tc := range []struct {
		name     string
		ours     *v1alpha1.EvictionRequest
		priority int32
		want     string
		joins    bool
	}{
		{"while an interceptor of ours has the turn it waits", anew("a.example.com", true, drain), 1000, waits, true},
		{"while an interceptor of ours is the next it waits", anew(v1alpha1.NativeInterceptor, true, drain), 1000, waits, true},
		{"where ours come first it does not wait", anew("a.example.com", true, drain), 20000,
			"pod-1-web: " + v1alpha1.NativeResponder + "=Active " + first + "=Inactive " + theEvictor + "=Inactive" + runs, true},
		{"when ours had all their turns it begins, and our request stays", anew(v1alpha1.ImperativeEvictionInterceptor, true, drain), 1000, works, true},
		{"while our request asks natively it begins", anew(v1alpha1.NativeInterceptor, false, drain), 1000, works, false},
		{"without a request of ours it begins", nil, 1000, works, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, first)
			w.Priority, w.Interceptors, w.Ours = tc.priority, []string{"a.example.com"}, tc.ours
			w.wants("wish", "user.example.com/me")
			w.settle()
			if diff := cmp.Diff(tc.want, w.says(0)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if d := w.step(); d.Join != tc.joins || d.Withdraw {
				t.Errorf("our request is joined: %t, want %t; left: %t", d.Join, tc.joins, d.Withdraw)
			}
			if tc.want != waits {
				return
			}
			if message := meta.FindStatusCondition(w.Requests[0].Status.Conditions, failed).Message; message != oursGoOnMessage {
				t.Errorf("the request says %q", message)
			}
			w.Ours = anew(v1alpha1.ImperativeEvictionInterceptor, true, v1alpha1.NativeInterceptor)
			w.settle()
			if diff := cmp.Diff(works, w.says(0)); diff != "" {
				t.Errorf("after ours (-want +got):\n%s", diff)
			}
			if d := w.step(); d.Withdraw {
				t.Error("our request is left, so that its turns would come once more")
			}
		})
	}
}

// A wish that the same decision makes counts: nothing ends for want of requesters meanwhile.
func TestNative_AWishThatIsBeingMadeCounts(t *testing.T) {
	w := newWorld(t, first)
	w.Ours = asksUs("er-1", "drain.example.com")
	w.byHand("by-hand")
	w.settle()
	if diff := cmp.Diff("by-hand: "+first+"=Active "+theEvictor+"=Inactive"+runs, w.says(0)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestWhoWaitsForTheNextEviction(t *testing.T) {
	asks := func(intent lifecyclev1alpha1.EvictionRequestIntent) []*lifecyclev1alpha1.EvictionRequest {
		return []*lifecyclev1alpha1.EvictionRequest{{Spec: lifecyclev1alpha1.EvictionRequestSpec{Intent: intent}}}
	}
	wanted, withdrawn := asks(lifecyclev1alpha1.EvictionRequestIntentEviction), asks(lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
	for name, tc := range map[string]struct {
		er       *v1alpha1.EvictionRequest
		requests []*lifecyclev1alpha1.EvictionRequest
		want     bool
	}{
		"nobody asks natively":                       {anew("a.example.com", true), nil, false},
		"who asked has withdrawn":                    {anew("a.example.com", true), withdrawn, false},
		"the native responders have answered before": {anew("a.example.com", true), wanted, true},
		"the native responders were silent":          {anew("a.example.com", false), wanted, false},
		"there is no request of ours":                {nil, wanted, true},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Awaits(tc.er, tc.requests)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
