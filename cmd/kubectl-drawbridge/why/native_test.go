package why

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const responderA, responderB = "a.example.com/a", "b.example.com/b"

func natively(e *builder.NativeEvictionWrapper) func(*Facts) {
	return func(f *Facts) { f.Eviction = e.Obj() }
}

// responding is an Eviction in the hands of its first responder of two, changed by change if that
// is not nil.
func responding(change func(*lifecyclev1alpha1.ResponderStatus)) *builder.NativeEvictionWrapper {
	return builder.NativeEviction("shop", "db-0", "uid").Requesters("acme.example.com/scale").Responders(responderB, responderA).
		State(responderA, lifecyclev1alpha1.ResponderStateActive, ago(3*time.Minute)).Report(responderA, func(s *lifecyclev1alpha1.ResponderStatus) {
		s.Message, s.HeartbeatTime, s.ExpectedCompletionTime = new("42 %"), new(metav1.NewTime(ago(time.Minute))), new(metav1.NewTime(now.Add(2*time.Minute)))
		if change != nil {
			change(s)
		}
	})
}

// nativeTurn is a request in whose plan it is the turn of native responders.
func nativeTurn() *builder.EvictionRequestWrapper {
	return evictionRequest().Interceptors(v1alpha1.NativeInterceptor).Active(v1alpha1.NativeInterceptor, ago(3*time.Minute)).Started(v1alpha1.NativeInterceptor, ago(3*time.Minute))
}

func TestNativeRespondersAreToldByTheirNames(t *testing.T) {
	var out strings.Builder
	f := facts(pod().UID("uid").Responders(responderB, responderA), with(nativeTurn()), answering(warned), natively(responding(nil)))
	f.Native = true
	if err := Print(&out, Tell(f), now, false); err != nil {
		t.Fatal(err)
	}
	want := `
Interceptors
  1  native.drawbridge.dev       has its turn        native responders, by Kubernetes' own API (Eviction pod-1-db-0)
     got its turn 3m ago, heard 3m ago
     - a.example.com/a has its turn, got its turn 3m ago, heard 60s ago, done in 2m, "42 %"
     - b.example.com/b waits for its turn
  2  imperative-eviction.k8s.io  waits for its turn  always the last
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("it should have %s\nbut is\n%s", want, out.String())
	}
	if !strings.Contains(out.String(), "  acme.example.com/scale  by Kubernetes' own API\n") {
		t.Errorf("it does not say who asked natively:\n%s", out.String())
	}
}

func TestAResponderThatIsSilentIsNoted(t *testing.T) {
	heard := func(long time.Duration) func(*lifecyclev1alpha1.ResponderStatus) {
		return func(s *lifecyclev1alpha1.ResponderStatus) {
			s.HeartbeatTime = new(metav1.NewTime(ago(long)))
		}
	}
	for name, tc := range map[string]struct {
		facts Facts
		want  []string
	}{
		"one that reports":   {facts(pod().UID("uid"), natively(responding(heard(4*time.Minute)))), nil},
		"one that does not":  {facts(pod().UID("uid"), natively(responding(heard(8*time.Minute)))), []string{"Native responder a.example.com/a last reported 8m ago. See whether it runs, and whether it may patch evictions/status; after 20 minutes of silence it is passed over."}},
		"one whose turn was": {facts(pod().UID("uid"), natively(responding(heard(8*time.Minute)).Ended(lifecyclev1alpha1.EvictionConditionFailed, now))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, silentResponder(newCase(&tc.facts))); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}
