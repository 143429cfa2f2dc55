package hook

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRoom(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	var woken []string
	r := newRoom(clock, 3, 2, func(request types.NamespacedName) { woken = append(woken, request.String()) })
	request := func(namespace string, n int) (types.UID, types.NamespacedName) {
		return types.UID(fmt.Sprintf("%s-%d", namespace, n)), types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}
	}
	take := func(namespace string, n int) bool {
		uid, key := request(namespace, n)
		return r.take(uid, key)
	}
	give := func(namespace string, n int) {
		uid, _ := request(namespace, n)
		r.give(uid)
	}
	for _, s := range []struct {
		what string
		got  bool
		want bool
	}{
		{"the first of a namespace", take("a", 1), true},
		{"the second", take("a", 2), true},
		{"the second once more", take("a", 2), true},
		{"the third, as the namespace is full", take("a", 3), false},
		{"one of another namespace", take("b", 1), true},
		{"the second of it, as the cluster is full", take("b", 2), false},
	} {
		if s.got != s.want {
			t.Errorf("%s: %t, want %t", s.what, s.got, s.want)
		}
	}
	give("a", 1)
	if diff := cmp.Diff([]string{"a/3"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if take("b", 2) {
		t.Error("the one that came later is before the one that waits")
	}
	woken = nil
	give("a", 3) // It was called off.
	if diff := cmp.Diff([]string{"b/2"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if !take("b", 2) {
		t.Error("the one that was woken has no room")
	}
	if running, waiting := r.count(); running != 3 || waiting != 0 {
		t.Errorf("%d run and %d wait, want 3 and 0", running, waiting)
	}

	// One that never asks again does not keep others out for ever.
	give("b", 1)
	take("b", 9)
	give("b", 9)
	if take("a", 4); take("a", 5) {
		t.Error("the namespace a has room for a third")
	}
	clock.Step(waiterForgotten + time.Second)
	give("a", 2)
	if !take("a", 6) {
		t.Error("one that was forgotten keeps others out")
	}
}

// What ran before a restart counts, whatever the limits are.
func TestRoomOfTheLifeBefore(t *testing.T) {
	r := newRoom(clocktesting.NewFakeClock(noon), 1, 1, func(types.NamespacedName) {})
	r.hold("1", "a")
	r.hold("2", "a")
	if r.take("3", types.NamespacedName{Namespace: "a", Name: "3"}) {
		t.Error("there is room for another one")
	}
	r.give("1")
	r.give("2")
	if !r.take("3", types.NamespacedName{Namespace: "a", Name: "3"}) {
		t.Error("there is no room")
	}
}
