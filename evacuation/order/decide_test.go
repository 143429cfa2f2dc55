package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
)

var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// nameLabel has the name of a pod of these tests, so that orders can select single pods.
const nameLabel = "example.com/name"

// behind is an order by which a pod waits for pods of these names, of all namespaces.
func behind(timeout time.Duration, names ...string) *registration.After {
	after, err := registration.NewAfter("last.order.drawbridge.dev", &v1alpha1.EvictionOrder{
		PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: nameLabel, Operator: metav1.LabelSelectorOpIn, Values: names}}},
		Timeout:     &metav1.Duration{Duration: timeout},
	})
	if err != nil {
		panic(err) // It is written in a test.
	}
	return after
}

// podNamed waits as the orders say.
func podNamed(name string, after ...*registration.After) Pod {
	return Pod{
		key: types.NamespacedName{Namespace: "shop", Name: name}, uid: types.UID(name),
		labels: map[string]string{nameLabel: name}, namespace: map[string]string{"team": "a"}, after: after,
	}
}

func TestDecide(t *testing.T) {
	const passed = time.Minute
	wait := func(names ...string) *registration.After { return behind(10*time.Minute, names...) }
	inTeam, err := registration.NewAfter("last.order.drawbridge.dev", &v1alpha1.EvictionOrder{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := podNamed("b")
	elsewhere.namespace = map[string]string{"team": "b"}
	daemon := podNamed("b", wait("a"))
	daemon.stays = true
	selfStays := podNamed("a", wait("b"))
	selfStays.stays = true
	cases := map[string]struct {
		self   Pod
		others []Pod
		want   Decision
	}{
		"no order any more":          {podNamed("a"), []Pod{podNamed("b")}, Decision{Done: true, Message: "No registration says any more which pods leave before this one."}},
		"nobody else":                {podNamed("a", wait("b")), nil, Decision{Done: true, Message: "No pod is left on node n1 that leaves before this one."}},
		"nobody that is selected":    {podNamed("a", wait("c")), []Pod{podNamed("b")}, Decision{Done: true, Message: "No pod is left on node n1 that leaves before this one."}},
		"never itself":               {podNamed("a", wait("a", "b")), nil, Decision{Done: true, Message: "No pod is left on node n1 that leaves before this one."}},
		"one":                        {podNamed("a", wait("b")), []Pod{podNamed("b")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(10 * time.Minute)}},
		"by its namespace":           {podNamed("a", inTeam), []Pod{podNamed("c"), elsewhere}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(10 * time.Minute)}},
		"many, sorted":               {podNamed("a", wait("b", "c", "d", "e", "f")), []Pod{podNamed("f"), podNamed("e"), podNamed("d"), podNamed("c"), podNamed("b")}, Decision{Message: "Waiting for 5 pods of node n1 to leave, at most 10m: shop/b, shop/c, shop/d and 2 more.", Left: []string{"shop/b", "shop/c", "shop/d", "shop/e", "shop/f"}, Again: t0.Add(10 * time.Minute)}},
		"several orders":             {podNamed("a", wait("b"), behind(2*time.Hour, "c")), []Pod{podNamed("b"), podNamed("c")}, Decision{Message: "Waiting for 2 pods of node n1 to leave, at most 120m: shop/b, shop/c.", Left: []string{"shop/b", "shop/c"}, Again: t0.Add(10 * time.Minute)}},
		"the longer of two for one":  {podNamed("a", behind(30*time.Second, "b"), wait("b")), []Pod{podNamed("b")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(10 * time.Minute)}},
		"not for those that stay":    {podNamed("a", wait("b")), []Pod{daemon}, Decision{Done: true, Message: "No pod is left on node n1 that leaves before this one."}},
		"the time is over":           {podNamed("a", behind(time.Minute, "b", "c")), []Pod{podNamed("c"), podNamed("b")}, Decision{Done: true, Message: "Not waiting any longer after 60s for 2 pods of node n1: shop/b, shop/c.", Late: []string{"shop/b", "shop/c"}, Timeout: time.Minute}},
		"the time of one is over":    {podNamed("a", behind(time.Minute, "b"), wait("c")), []Pod{podNamed("b"), podNamed("c")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/c. Not waiting any longer after 60s for 1 pod of node n1: shop/b.", Left: []string{"shop/c"}, Again: t0.Add(10 * time.Minute), Late: []string{"shop/b"}, Timeout: time.Minute}},
		"the time is nearly over":    {podNamed("a", behind(time.Minute+time.Nanosecond, "b")), []Pod{podNamed("b")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 60s: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(time.Minute + time.Nanosecond)}},
		"each other":                 {podNamed("a", wait("b")), []Pod{podNamed("b", wait("a"))}, Decision{Done: true, Message: "Not waiting for 1 pod, because they would wait for each other: shop/b.", Circle: []string{"shop/b"}}},
		"each other, by way of one":  {podNamed("a", wait("b")), []Pod{podNamed("b", wait("c")), podNamed("c", wait("a"))}, Decision{Done: true, Message: "Not waiting for 1 pod, because they would wait for each other: shop/b.", Circle: []string{"shop/b"}}},
		"a circle of others":         {podNamed("a", wait("b")), []Pod{podNamed("b", wait("c")), podNamed("c", wait("b"))}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(10 * time.Minute)}},
		"each other, and a third":    {podNamed("a", wait("b", "c")), []Pod{podNamed("b", wait("a")), podNamed("c")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/c. Not waiting for 1 pod, because they would wait for each other: shop/b.", Left: []string{"shop/c"}, Again: t0.Add(10 * time.Minute), Circle: []string{"shop/b"}}},
		"each other, after the time": {podNamed("a", behind(time.Second, "b")), []Pod{podNamed("b", wait("a"))}, Decision{Done: true, Message: "Not waiting for 1 pod, because they would wait for each other: shop/b.", Circle: []string{"shop/b"}}},
		"nobody waits for who stays": {selfStays, []Pod{podNamed("b", wait("a"))}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/b.", Left: []string{"shop/b"}, Again: t0.Add(10 * time.Minute)}},
		"some of one registration":   {podNamed("a", wait("a", "b", "c")), []Pod{podNamed("b", wait("a", "b", "c")), podNamed("c")}, Decision{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/c. Not waiting for 1 pod, because they would wait for each other: shop/b.", Left: []string{"shop/c"}, Again: t0.Add(10 * time.Minute), Circle: []string{"shop/b"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := &Input{Now: t0.Add(passed), Since: t0, Node: "n1", Self: tc.self, Others: tc.others}
			if diff := cmp.Diff(tc.want, Decide(in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// waitsOn is who waits for whom among some pods, for a time each.
type waitsOn struct {
	pods []Pod
	// on has the indexes of those that a pod waits for.
	on [][]int
}

// world makes pods with these relations; timeout is that of a pod.
func world(on [][]int, timeout func(of int) time.Duration) waitsOn {
	w := waitsOn{on: on}
	for i := range on {
		var after []*registration.After
		if len(on[i]) > 0 {
			var names []string
			for _, j := range on[i] {
				names = append(names, name(j))
			}
			after = append(after, behind(timeout(i), names...))
		}
		w.pods = append(w.pods, podNamed(name(i), after...))
	}
	return w
}

func name(i int) string { return fmt.Sprintf("p%02d", i) }

// reaches reports whether a pod waits for another one, directly or by way of those that are
// there.
func (w waitsOn) reaches(from, to int, there func(int) bool) bool {
	seen := map[int]bool{}
	for queue := slices.Clone(w.on[from]); len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		if seen[i] || !there(i) {
			continue
		}
		if i == to {
			return true
		}
		seen[i] = true
		queue = append(queue, w.on[i]...)
	}
	return false
}

// input is what a pod sees of those that are there, in any order.
func (w waitsOn) input(of int, now, since time.Time, there func(int) bool) *Input {
	in := &Input{Now: now, Since: since, Node: "n1", Self: w.pods[of]}
	for i := range w.pods {
		if i != of && there(i) {
			in.Others = append(in.Others, w.pods[i])
		}
	}
	return in
}

// A pod waits for exactly those that it is behind, that are there, whose time is not over, and
// that do not wait for it in turn. Two that wait for each other both see it.
func TestWhoWaitsForWhom(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	circles, waits, late := 0, 0, 0
	for range 3000 {
		n := 1 + random.IntN(6)
		on := make([][]int, n)
		timeouts := make([]time.Duration, n)
		for i := range on {
			timeouts[i] = time.Duration(1+random.IntN(3)) * time.Minute
			for j := range n {
				if j != i && random.IntN(3) == 0 {
					on[i] = append(on[i], j)
				}
			}
		}
		w := world(on, func(of int) time.Duration { return timeouts[of] })
		present := random.Uint32()
		for of := range n {
			there := func(i int) bool { return i == of || present>>i&1 == 1 }
			passed := time.Duration(random.IntN(4)) * time.Minute
			in := w.input(of, t0.Add(passed), t0, there)
			random.Shuffle(len(in.Others), func(i, j int) { in.Others[i], in.Others[j] = in.Others[j], in.Others[i] })
			got := Decide(in)
			want := Decision{Done: true}
			for _, i := range w.on[of] {
				switch {
				case !there(i):
				case w.reaches(i, of, there):
					want.Circle = append(want.Circle, "shop/"+name(i))
					circles++
				case passed >= timeouts[of]:
					want.Late, want.Timeout = append(want.Late, "shop/"+name(i)), timeouts[of]
					late++
				default:
					want.Done, want.Left, want.Again = false, append(want.Left, "shop/"+name(i)), t0.Add(timeouts[of])
					waits++
				}
			}
			want.Message = got.Message
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("pod %d of %v after %s, of which are there %b (-want +got):\n%s", of, on, passed, present, diff)
			}
			if passed >= timeouts[of] && !got.Done {
				t.Fatalf("pod %d of %v waits longer than %s", of, on, timeouts[of])
			}
			for i := range n {
				other := "shop/" + name(i)
				if i == of || !there(i) || !slices.Contains(got.Circle, other) || !slices.Contains(w.on[i], of) {
					continue
				}
				if back := Decide(w.input(i, in.Now, t0, there)); !slices.Contains(back.Circle, "shop/"+name(of)) {
					t.Fatalf("%d and %d of %v: only one of them sees that they wait for each other", of, i, on)
				}
			}
		}
	}
	if min(circles, waits, late) < 500 {
		t.Errorf("%d circles, %d waits, %d too late", circles, waits, late)
	}
}

// Whatever is in a list, a message stays short.
func TestMessagesNameAFewPods(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, "shop/"+strings.Repeat("x", 200)+name(i))
	}
	if got := list(names); !strings.HasSuffix(got, " and 497 more") || len(got) > 800 {
		t.Errorf("%d characters: %s", len(got), got)
	}
}
