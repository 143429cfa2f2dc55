package hook

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheLimiterOfAttempts(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	var woken []string
	l := newLimiter(clock, 3, 2, func(request types.NamespacedName) { woken = append(woken, request.String()) })
	request := func(namespace string, n int) (types.UID, types.NamespacedName) {
		return types.UID(fmt.Sprintf("%s-%d", namespace, n)), types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}
	}
	acquire := func(namespace string, n int) bool {
		uid, key := request(namespace, n)
		return l.tryAcquire(uid, key)
	}
	release := func(namespace string, n int) {
		uid, _ := request(namespace, n)
		l.release(uid)
	}
	for _, s := range []struct {
		what string
		got  bool
		want bool
	}{
		{"the first of a namespace", acquire("a", 1), true},
		{"the second", acquire("a", 2), true},
		{"the second once more", acquire("a", 2), true},
		{"the third, as the namespace is full", acquire("a", 3), false},
		{"one of another namespace", acquire("b", 1), true},
		{"the second of it, as the cluster is full", acquire("b", 2), false},
	} {
		if s.got != s.want {
			t.Errorf("%s: %t, want %t", s.what, s.got, s.want)
		}
	}
	release("a", 1)
	if diff := cmp.Diff([]string{"a/3"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if acquire("b", 2) {
		t.Error("the one that came later is before the one that waits")
	}
	woken = nil
	release("a", 3) // It was canceled.
	if diff := cmp.Diff([]string{"b/2"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if !acquire("b", 2) {
		t.Error("the one that was woken has no room")
	}
	if running, waiting := l.count(); running != 3 || waiting != 0 {
		t.Errorf("%d run and %d wait, want 3 and 0", running, waiting)
	}

	// One that never asks again does not keep others out for ever.
	release("b", 1)
	acquire("b", 9)
	release("b", 9)
	if acquire("a", 4); acquire("a", 5) {
		t.Error("the namespace a has room for a third")
	}
	clock.Step(waiterForgotten + time.Second)
	release("a", 2)
	if !acquire("a", 6) {
		t.Error("one that was forgotten keeps others out")
	}
}

// What ran before a restart counts, whatever the limits are.
func TestTheLimiterCountsWhatRanBefore(t *testing.T) {
	l := newLimiter(clocktesting.NewFakeClock(noon), 1, 1, func(types.NamespacedName) {})
	l.hold("1", "a")
	l.hold("2", "a")
	if l.tryAcquire("3", types.NamespacedName{Namespace: "a", Name: "3"}) {
		t.Error("there is room for another one")
	}
	l.release("1")
	l.release("2")
	if !l.tryAcquire("3", types.NamespacedName{Namespace: "a", Name: "3"}) {
		t.Error("there is no room")
	}
}

// Who is woken in vain asks the API server for nothing, but a thousand do.
func TestTheLimiterWakesOnlyWhoMayRun(t *testing.T) {
	var woken []string
	l := newLimiter(clocktesting.NewFakeClock(noon), 3, 1, func(request types.NamespacedName) { woken = append(woken, request.String()) })
	l.hold("0", "a")
	for _, name := range []string{"1", "2", "3"} {
		if l.tryAcquire(types.UID(name), types.NamespacedName{Namespace: "a", Name: name}) {
			t.Errorf("%s has room", name)
		}
	}
	l.release("0")
	if diff := cmp.Diff([]string{"a/1"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}
