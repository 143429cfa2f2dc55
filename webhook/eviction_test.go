package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func n1() *builder.NodeWrapper { return builder.Node("n1") }

// evict sends alice's call and returns the message of the answer, or "allowed".
func (w *world) evict(changes ...func(*admissionv1.AdmissionRequest)) string {
	w.t.Helper()
	response := answerIn(w.t.(*testing.T), post(w.handler, reviewOf(changes...)))
	if response.Allowed {
		return strings.Join(append([]string{"allowed"}, response.Warnings...), ", ")
	}
	return response.Result.Message
}

func (w *world) wantCalls(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.calls()); diff != "" {
		w.t.Errorf("API calls (-want +got):\n%s", diff)
	}
}

func (w *world) wantAnswer(want string, changes ...func(*admissionv1.AdmissionRequest)) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.evict(changes...)); diff != "" {
		w.t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestFirstCallCreates(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Cordoned().Obj())
	w.wantAnswer(textAccepted)
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "apply EvictionRequest ")

	request := w.request()
	wantSpec := v1alpha1.EvictionRequestSpec{
		Target:     v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: "db-0", UID: "uid-1"}},
		Requesters: []v1alpha1.Requester{{Name: alice, LeaseName: leaseN1}},
	}
	if diff := cmp.Diff(wantSpec, request.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	record, err := translate.DecodeLease(w.lease())
	if err != nil {
		t.Fatal(err)
	}
	wantRecord := translate.LeaseRecord{
		Requester: alice, Node: "n1", Display: "kubectl (alice)", Class: translate.ClassKubectl, TTL: 2 * time.Minute,
		RenewedAt: t0, Markers: []string{"unschedulable"},
	}
	record.RenewedAt = record.RenewedAt.UTC()
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"EvictionRequest EvictionRequested", "Pod EvictionRequested"}, w.recorder.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestRepeatedDenialMakesNoAPICall(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	w.evict()
	w.calls()

	w.wantAnswer(textAccepted) // The cache does not show the request yet.
	w.wantCalls()
	w.sync()
	w.wantAnswer(textAccepted) // It does now.
	w.wantCalls()

	request := w.request()
	request.Status = er().Active(interA, t0).Status
	if err := w.api.Status().Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.sync()
	for range 100 {
		w.wantAnswer(textWaitingA)
		w.clock.Step(300 * time.Millisecond)
	}
	w.wantCalls()
	want := map[string]float64{"kubectl accepted denied": 3, "kubectl waiting denied": 100}
	if diff := cmp.Diff(want, w.counter("drawbridge_eviction_verdicts_total")); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestPlainPodMakesNoAPICall(t *testing.T) {
	plainPod := builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning)
	w := newWorld(t, plainPod.Obj())
	for range 3 {
		w.wantAnswer("allowed")
	}
	w.wantCalls()
	if events := w.recorder.take(); len(events) > 0 {
		t.Errorf("events %v", events)
	}
}

func TestFiftyCallsAtOnceMakeOneRequest(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	var group sync.WaitGroup
	answers := make([]string, 50)
	for i := range answers {
		group.Go(func() { answers[i] = w.evict() })
	}
	group.Wait()
	for _, answer := range answers {
		if answer != textAccepted {
			t.Errorf("answer %q", answer)
		}
	}
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "apply EvictionRequest ")
}

// The controller compares whom it plans for with whom the webhook saw.
func TestARequestSaysWhomItsMakerSaw(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	w.evict()
	if got := w.request().Annotations[v1alpha1.SeenInterceptorsAnnotation]; got != interA+","+interB {
		t.Errorf("the request says that %q were seen", got)
	}
}

func TestACallDecidedBeforeAnotherLandedWritesNothing(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	in, decision, err := w.handler.decide(context.Background(), call())
	if err != nil {
		t.Fatal(err)
	}
	w.evict()
	w.calls()
	verdict, err := w.handler.apply(context.Background(), in, decision)
	if err != nil || verdict.Message != textAccepted {
		t.Errorf("verdict %+v, error %v", verdict, err)
	}
	w.wantCalls()
}

func TestPodsOfOneNodeShareALease(t *testing.T) {
	objects := []client.Object{n1().Obj()}
	for i := range 20 {
		objects = append(objects, builder.Pod("shop", fmt.Sprintf("p%d", i)).UID(types.UID(fmt.Sprintf("uid-p%d", i))).Node("n1").Phase(corev1.PodRunning).Interceptors(interA).Obj())
	}
	w := newWorld(t, objects...)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() { w.evict(func(r *admissionv1.AdmissionRequest) { r.Name = fmt.Sprintf("p%d", i) }) })
	}
	group.Wait()
	counts := map[string]int{}
	for _, c := range w.calls() {
		counts[c]++
	}
	want := map[string]int{"get Node n1": 1, "create Lease " + leaseN1: 1, "apply EvictionRequest ": 20}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("API calls (-want +got):\n%s", diff)
	}
}

func TestJoin(t *testing.T) {
	w := newWorld(t, db0().Obj(), n1().Obj())
	w.evict()
	w.sync()
	w.calls()
	bob := func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "bob" }
	w.wantAnswer(textAccepted, bob)
	w.wantAnswer(textAccepted, bob)
	if n := len(w.calls()); n != 3 {
		t.Errorf("%d API calls for bob, want 3", n)
	}
	names := func() (names []string) {
		for _, r := range w.request().Spec.Requesters {
			names = append(names, r.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{alice, "bob.users.drawbridge.dev"}, names()); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	// A longer grace period is told once, a shorter one never.
	longer := raw(`{"metadata":{"managedFields":[{"manager":"kubectl"}]},"deleteOptions":{"gracePeriodSeconds":90}}`)
	shorter := raw(`{"metadata":{"managedFields":[{"manager":"kubectl"}]},"deleteOptions":{"gracePeriodSeconds":10}}`)
	w.sync()
	w.calls()
	w.evict(longer)
	w.evict(longer)
	w.evict(shorter)
	w.wantCalls("apply EvictionRequest ")
	if got := w.request().Spec.Requesters[0]; got.GracePeriodSeconds == nil || *got.GracePeriodSeconds != 90 || len(names()) != 2 {
		t.Errorf("entry %+v of %v", got, names())
	}
}

func TestRestartAfterCancel(t *testing.T) {
	canceled := er().Canceled(v1alpha1.ReasonNoRequesters, t0)
	canceled.Spec.Requesters = nil
	w := newWorld(t, db0().Obj(), n1().Obj(), canceled.Obj())
	w.wantAnswer(textAccepted)
	w.wantCalls("get Node n1", "create Lease "+leaseN1, "delete EvictionRequest uid-1", "apply EvictionRequest ")
	request := w.request()
	if len(request.Status.Conditions) > 0 || len(request.Spec.Requesters) != 1 {
		t.Errorf("not a new request: %+v", request)
	}
	w.sync()
	w.wantAnswer(textAccepted)
	w.wantCalls()
}

func TestRestartSparesARequestThatChanged(t *testing.T) {
	canceled := er().Canceled(v1alpha1.ReasonNoRequesters, t0)
	w := newWorld(t, db0().Obj(), n1().Obj(), canceled.Obj())
	request := w.request()
	request.Labels = map[string]string{"changed": "meanwhile"}
	if err := w.api.Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.wantAnswer("Eviction could not be coordinated yet: the request changed at the same moment, retry")
	if w.request() == nil {
		t.Error("the request was deleted although it had changed")
	}
	w.sync()
	w.wantAnswer(textAccepted)
}

func TestDryRunWritesNothing(t *testing.T) {
	bad := db0().Annotation(v1alpha1.InterceptorsAnnotation, "a.example.com,Bad").Obj()
	w := newWorld(t, bad, n1().Obj())
	w.wantAnswer("allowed, "+warningOf("db-0", "429: "+textAccepted), raw(`{"deleteOptions":{"dryRun":["All"]}}`))
	w.wantAnswer("allowed, "+warningOf("db-0", "429: "+textAccepted), func(r *admissionv1.AdmissionRequest) { r.DryRun = new(bool); *r.DryRun = true })
	w.wantCalls()
	if events := w.recorder.take(); len(events) > 0 || w.request() != nil {
		t.Errorf("events %v, request %v", events, w.request())
	}
}

func TestCacheMiss(t *testing.T) {
	t.Run("a pod that is new to us is found", func(t *testing.T) {
		w := newWorld(t, n1().Obj())
		if err := w.api.Create(context.Background(), db0().ResourceVersion("").Obj()); err != nil {
			t.Fatal(err)
		}
		w.wantAnswer(textAccepted)
		w.wantCalls("get Pod db-0", "get Node n1", "create Lease "+leaseN1, "apply EvictionRequest ")
	})
	t.Run("a pod that is not there is let through after one look", func(t *testing.T) {
		w := newWorld(t)
		w.wantAnswer("allowed")
		w.wantCalls("get Pod db-0")
	})
	t.Run("a cached pending pod that runs by now is not let through", func(t *testing.T) {
		w := newWorld(t, db0().Phase(corev1.PodPending).Obj(), n1().Obj())
		running := db0().Obj()
		running.ResourceVersion = ""
		if err := w.api.Status().Update(context.Background(), running); err != nil {
			t.Fatal(err)
		}
		w.wantAnswer(textAccepted)
	})
	t.Run("an evicted pod in the cache hides its replacement", func(t *testing.T) {
		w := newWorld(t, db0().Obj(), n1().Obj(), builder.Node("n2").Obj(), er().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), leaseOfN1())
		if err := w.api.Delete(context.Background(), db0().Obj()); err != nil {
			t.Fatal(err)
		}
		if err := w.api.Create(context.Background(), db0().UID("uid-2").Node("n2").ResourceVersion("").Obj()); err != nil {
			t.Fatal(err)
		}
		w.wantAnswer(textLeft)
		w.wantCalls("get Pod db-0", "get Node n2", "get EvictionRequest uid-1", "patch EvictionRequest uid-1")
		if diff := cmp.Diff([]string{"Pod ReplacementSpared"}, w.recorder.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestReplacementAnswer(t *testing.T) {
	w := newWorld(t, db0().UID("uid-2").Node("n2").Obj(), builder.Node("n2").Obj(), er().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj(), leaseOfN1())
	response := answerIn(t, post(w.handler, reviewOf()))
	if response.Allowed || response.Result.Code != http.StatusNotFound || response.Result.Reason != metav1.StatusReasonNotFound {
		t.Errorf("want 404 NotFound, got %+v", response.Result)
	}
}

func TestOwnCallLooksBeforeItIsDenied(t *testing.T) {
	self := func(r *admissionv1.AdmissionRequest) {
		r.UserInfo.Username = ownAdmin
		r.Object.Raw = []byte(`{"deleteOptions":{"preconditions":{"uid":"uid-1"}}}`)
	}
	w := newWorld(t, db0().Obj(), er().Processed(interA).Active(interB, t0).Obj())
	w.wantAnswer("Eviction could not be coordinated yet: the request is not in the imperative stage, retry", self)
	w.wantCalls("get EvictionRequest uid-1")

	request := w.request()
	request.Status = er().Processed(interA, interB).Active(evictor, t0).Status
	if err := w.api.Status().Update(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.wantAnswer("allowed", self) // The cache still shows the second interceptor.
	w.wantCalls("get EvictionRequest uid-1")
	w.sync()
	w.wantAnswer("allowed", self)
	w.wantCalls()

	if err := w.api.Delete(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	w.cache.set(w.build(db0().Obj(), er().Active(interA, t0).Obj()))
	w.wantAnswer("Eviction could not be coordinated yet: the request is not in the imperative stage, retry", self)
}

func TestMalformedAnnotationIsToldOnce(t *testing.T) {
	t.Run("the names that can be read count", func(t *testing.T) {
		w := newWorld(t, db0().Annotation(v1alpha1.InterceptorsAnnotation, "a.example.com,Bad").Obj(), n1().Obj())
		w.wantAnswer(textAccepted)
		want := []string{"EvictionRequest EvictionRequested", "Pod EvictionRequested", "Pod InvalidInterceptors"}
		if diff := cmp.Diff(want, w.recorder.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		w.evict()
		if events := w.recorder.take(); len(events) > 0 {
			t.Errorf("told twice: %v", events)
		}
	})
	t.Run("nothing can be read: the pod is let go", func(t *testing.T) {
		w := newWorld(t, db0().Annotation(v1alpha1.InterceptorsAnnotation, "Bad").Obj())
		w.wantAnswer("allowed")
		w.wantCalls()
		if diff := cmp.Diff([]string{"Pod InvalidInterceptors"}, w.recorder.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("a reserved name that is allowed is no mistake", func(t *testing.T) {
		w := newWorld(t, db0().Annotation(v1alpha1.InterceptorsAnnotation, "deployment.apps.k8s.io").Obj(), n1().Obj())
		w.handler.AllowedReserved = []string{"deployment.apps.k8s.io"}
		w.evict()
		if diff := cmp.Diff([]string(nil), w.recorder.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestFieldManager(t *testing.T) {
	a, b := FieldManager(alice), FieldManager("bob.users.drawbridge.dev")
	if a == b || len(a) > 128 || !strings.HasPrefix(a, "drawbridge-requester-") {
		t.Errorf("field managers %q and %q", a, b)
	}
}
