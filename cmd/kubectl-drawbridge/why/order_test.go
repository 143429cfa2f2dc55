package why

import (
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Who waits for other pods of the node is told as of any interceptor, and where it comes from.
func TestWhatIsToldOfTheOrderOfPods(t *testing.T) {
	const message = "Waiting for 1 pod of node node-1 to leave, at most 10m: shop/web-0."
	turn := evictionRequest().Interceptors(v1alpha1.OrderInterceptor).Active(v1alpha1.OrderInterceptor, ago(time.Minute)).
		Started(v1alpha1.OrderInterceptor, ago(time.Minute)).
		Report(v1alpha1.OrderInterceptor, func(s *v1alpha1.InterceptorStatus) { s.Message = message })
	told := Tell(facts(pod(), with(turn), answering(warned)))
	if told.Verdict != VerdictInterceptorWorks || len(told.Interceptors) != 2 {
		t.Fatalf("verdict %s: %s, of %+v", told.Verdict, told.Headline, told.Interceptors)
	}
	if got := told.Interceptors[0]; got.Source != "spec.after of the registrations" || got.Message != message {
		t.Errorf("told of it: %+v", got)
	}
}
