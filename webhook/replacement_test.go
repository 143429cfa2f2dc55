package webhook

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// cameBack is a world in which db0 was evicted for alice a moment ago, and its
// successor runs on the same node.
func cameBack(t *testing.T) *world {
	t.Helper()
	return newWorld(t, member("n1").ResourceVersion("").Obj(), n1().Cordoned().Obj(),
		er().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), leaseOfN1())
}

func codeOf(response *admissionv1.AdmissionResponse) int32 {
	if response.Allowed {
		return http.StatusOK
	}
	return response.Result.Code
}

func (w *world) notified() string {
	w.t.Helper()
	return w.request().Annotations[v1alpha1.NotifiedAnnotation]
}

func TestALoopIsEndedOnceAndTheNextCallIsANewWish(t *testing.T) {
	w := cameBack(t)
	w.wantAnswer(`the pod already left node "n1"; its replacement on node "n1" is not evicted`)
	w.wantCalls("get Pod db-0", "get EvictionRequest uid-1", "patch EvictionRequest uid-1")
	if diff := cmp.Diff(alice, w.notified()); diff != "" {
		t.Errorf("notified (-want +got):\n%s", diff)
	}
	w.wantAnswer(textAccepted) // The cache does not show it yet.
	w.sync()
	w.wantAnswer(textAccepted)
}

func TestAnotherReplicaKnowsWhoWasTold(t *testing.T) {
	w := cameBack(t)
	other := w.replica() // It has not seen anything either: a manager that was restarted.
	if got := codeOf(answerIn(t, post(w.handler, reviewOf()))); got != http.StatusNotFound {
		t.Errorf("first call: want 404, got %d", got)
	}
	if response := answerIn(t, post(other, reviewOf())); codeOf(response) != http.StatusTooManyRequests || response.Result.Message != textAccepted {
		t.Errorf("second call, to the other: %+v", response.Result)
	}
}

func TestOfTwoCallsAtOnceOneIsTold(t *testing.T) {
	w := cameBack(t)
	w.failing(func(call string) error {
		if strings.HasPrefix(call, "patch EvictionRequest") {
			// The other replica was faster.
			request := &v1alpha1.EvictionRequest{}
			if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "uid-1"}, request); err != nil {
				return err
			}
			request.Annotations = map[string]string{v1alpha1.NotifiedAnnotation: alice}
			return w.api.Update(context.Background(), request)
		}
		return nil
	})
	response := answerIn(t, post(w.handler, reviewOf()))
	if codeOf(response) != http.StatusTooManyRequests || !strings.Contains(response.Result.Message, "changed at the same moment") {
		t.Errorf("want 429 for the slower one, got %+v", response.Result)
	}
	w.failing(nil)
	w.wantAnswer(textAccepted)
}

func TestWithoutARecordNobodyIsTold(t *testing.T) {
	w := cameBack(t)
	w.failing(func(call string) error {
		if strings.HasPrefix(call, "patch EvictionRequest") {
			return errors.New("overloaded")
		}
		return nil
	})
	for range 2 {
		if got := codeOf(answerIn(t, post(w.handler, reviewOf()))); got != http.StatusTooManyRequests {
			t.Errorf("want 429, got %d", got)
		}
	}
	w.failing(nil)
	if got := codeOf(answerIn(t, post(w.handler, reviewOf()))); got != http.StatusNotFound {
		t.Errorf("want 404, got %d", got)
	}
}

func TestTheEndIsRecordedForEachRequester(t *testing.T) {
	w := newWorld(t, member("n1").ResourceVersion("").Obj(), n1().Cordoned().Obj(), leaseOfN1(),
		er().Requesters("bob.users.drawbridge.dev").Annotation(v1alpha1.NotifiedAnnotation, "bob.users.drawbridge.dev").Evicted(v1alpha1.ReasonPodDeleted, t0).Obj())
	if got := codeOf(answerIn(t, post(w.handler, reviewOf()))); got != http.StatusNotFound {
		t.Errorf("want 404, got %d", got)
	}
	if diff := cmp.Diff(alice+",bob.users.drawbridge.dev", w.notified()); diff != "" {
		t.Errorf("notified (-want +got):\n%s", diff)
	}
}

func TestWhoHearsThatThePodIsGoneIsToldToo(t *testing.T) {
	w := newWorld(t, n1().Cordoned().Obj(), er().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), leaseOfN1())
	response := answerIn(t, post(w.handler, reviewOf()))
	if codeOf(response) != http.StatusNotFound || response.Result.Reason != metav1.StatusReasonNotFound {
		t.Errorf("want 404, got %+v", response.Result)
	}
	// The successor comes late, and the next drain means it.
	if err := w.api.Create(context.Background(), member("n1").ResourceVersion("").Obj()); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.clock.Step(time.Second)
	w.wantAnswer(textAccepted)
}
