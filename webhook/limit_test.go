package webhook

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const textTooManyNew = "Eviction could not be started yet: too many evacuations began on this node in the last minute, retry later"

func TestStarts(t *testing.T) {
	type step struct {
		after time.Duration
		node  string
		class translate.CallerClass
		pod   types.UID
		want  Start
	}
	const descheduler, unknown = translate.ClassDescheduler, translate.ClassUnknown
	cases := map[string][]step{
		"as many as allowed": {
			{0, "n1", descheduler, "a", StartGranted}, {0, "n1", descheduler, "b", StartGranted}, {0, "n1", descheduler, "c", StartRefused},
		},
		"a pod takes room once in a minute": {
			{0, "n1", descheduler, "a", StartGranted}, {time.Second, "n1", descheduler, "a", StartGranted},
			{0, "n1", descheduler, "b", StartGranted}, {0, "n1", descheduler, "a", StartGranted}, {0, "n1", descheduler, "c", StartRefused},
		},
		"room comes back a minute later, for each by itself": {
			{0, "n1", descheduler, "a", StartGranted}, {30 * time.Second, "n1", descheduler, "b", StartGranted},
			{30*time.Second - 1, "n1", descheduler, "c", StartRefused}, {1, "n1", descheduler, "c", StartGranted},
			{0, "n1", descheduler, "d", StartRefused}, {30 * time.Second, "n1", descheduler, "d", StartGranted},
		},
		"who is refused takes nothing": {
			{0, "n1", descheduler, "a", StartGranted}, {0, "n1", descheduler, "b", StartGranted},
			{59 * time.Second, "n1", descheduler, "c", StartRefused}, {time.Second, "n1", descheduler, "c", StartGranted},
		},
		"nodes and classes have room of their own": {
			{0, "n1", descheduler, "a", StartGranted}, {0, "n1", descheduler, "b", StartGranted}, {0, "n1", descheduler, "c", StartRefused},
			{0, "n2", descheduler, "c", StartGranted}, {0, "n1", unknown, "c", StartGranted},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(t0)
			s := newStarts(2, []translate.CallerClass{descheduler, unknown}, clock)
			for i, step := range steps {
				clock.Step(step.after)
				if got := s.take(step.node, step.class, step.pod); got != step.want {
					t.Errorf("step %d, pod %s: want %d, got %d", i, step.pod, step.want, got)
				}
			}
		})
	}
}

func TestWhomTheLimitIsFor(t *testing.T) {
	limited := []translate.CallerClass{translate.ClassDescheduler}
	cases := map[string]struct {
		limit int
		class translate.CallerClass
		want  Start
	}{
		"a class of the list": {10, translate.ClassDescheduler, StartLimited},
		"another class":       {10, translate.ClassKubectl, StartFree},
		"no limit at all":     {0, translate.ClassDescheduler, StartFree},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newStarts(tc.limit, limited, testingclock.NewFakeClock(t0)).applies(tc.class); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}

func TestTheMemoryOfTheLimitIsBounded(t *testing.T) {
	s := newStarts(1, nil, testingclock.NewFakeClock(t0))
	for i := range 2 * maxWindows {
		s.take(fmt.Sprintf("n%d", i), translate.ClassDescheduler, "a")
	}
	if n := s.windows.Len(); n > maxWindows {
		t.Errorf("%d windows", n)
	}
}

// descheduler signs its call.
func descheduler(r *admissionv1.AdmissionRequest) {
	r.UserInfo.Username = "system:serviceaccount:kube-system:descheduler"
	r.Object.Raw = []byte(`{"metadata":{"annotations":{"requested-by":"sigs.k8s.io/descheduler"}},"deleteOptions":{}}`)
}

func named(pod string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Name = pod }
}

// crowd is a world in which two evacuations per node and minute may be begun by
// descheduler, with twenty pods on n1.
func crowd(t *testing.T) *world {
	t.Helper()
	objects := []client.Object{n1().Obj()}
	for i := range 20 {
		objects = append(objects, builder.Pod("shop", fmt.Sprintf("p%d", i)).UID(types.UID(fmt.Sprintf("uid-p%d", i))).Node("n1").Phase(corev1.PodRunning).Interceptors(interA).Obj())
	}
	w := newWorld(t, objects...)
	w.handler.starts = newStarts(2, []translate.CallerClass{translate.ClassDescheduler}, w.clock)
	return w
}

// walk evicts every pod of the node once and counts the answers.
func (w *world) walk(who func(*admissionv1.AdmissionRequest)) map[string]int {
	w.t.Helper()
	answers := map[string]int{}
	for i := range 20 {
		answers[w.evict(who, named(fmt.Sprintf("p%d", i)))]++
	}
	return answers
}

func (w *world) wantWalk(who func(*admissionv1.AdmissionRequest), want map[string]int) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.walk(who)); diff != "" {
		w.t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestACallerThatWalksTheNodeStartsNoStorm(t *testing.T) {
	w := crowd(t)
	w.wantWalk(descheduler, map[string]int{textAccepted: 2, textTooManyNew: 18})
	applies := 0
	for _, call := range w.calls() {
		if call == "apply EvictionRequest " {
			applies++
		}
	}
	if applies != 2 {
		t.Errorf("%d requests, want 2", applies)
	}
	// It comes back at once: the two go on, nothing else begins, nothing is called.
	w.sync()
	w.wantWalk(descheduler, map[string]int{textAccepted: 2, textTooManyNew: 18})
	w.wantCalls()
	w.clock.Step(time.Minute)
	w.wantWalk(descheduler, map[string]int{textAccepted: 4, textTooManyNew: 16})

	want := map[string]float64{"descheduler accepted denied": 8, "descheduler too-many-new denied": 52}
	if diff := cmp.Diff(want, w.counter("drawbridge_eviction_verdicts_total")); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestKubectlIsNotLimited(t *testing.T) {
	w := crowd(t)
	w.wantWalk(descheduler, map[string]int{textAccepted: 2, textTooManyNew: 18})
	w.wantWalk(func(*admissionv1.AdmissionRequest) {}, map[string]int{textAccepted: 20})
	// What somebody else has begun may be joined.
	w.sync()
	w.wantWalk(descheduler, map[string]int{textAccepted: 20})
}

func TestCallsAtTheSameTimeTakeRoomOnce(t *testing.T) {
	w := crowd(t)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() { w.evict(descheduler, named("p0")) })
	}
	group.Wait()
	w.wantAnswer(textAccepted, descheduler, named("p1"))
	w.wantAnswer(textTooManyNew, descheduler, named("p2"))
}

func TestAFailedWriteTakesRoomOnce(t *testing.T) {
	w := crowd(t)
	w.failing(func(call string) error {
		if call == "apply EvictionRequest " {
			return fmt.Errorf("boom")
		}
		return nil
	})
	for range 5 {
		w.wantAnswer("Eviction could not be coordinated yet: the request could not be written, retry", descheduler, named("p0"))
	}
	w.failing(nil)
	w.wantAnswer(textAccepted, descheduler, named("p1"))
	w.wantAnswer(textAccepted, descheduler, named("p0"))
	w.wantAnswer(textTooManyNew, descheduler, named("p2"))
}

func TestADryRunTakesNoRoom(t *testing.T) {
	w := crowd(t)
	dry := func(r *admissionv1.AdmissionRequest) { descheduler(r); r.DryRun = new(true) }
	want := map[string]int{}
	for i := range 20 {
		want["allowed, "+warningOf(fmt.Sprintf("p%d", i), "429: "+textAccepted)] = 1
	}
	w.wantWalk(dry, want)
	w.wantWalk(descheduler, map[string]int{textAccepted: 2, textTooManyNew: 18})
}
