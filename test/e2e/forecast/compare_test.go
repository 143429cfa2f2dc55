//go:build unix

package forecast

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// compared is a scenario with what was foretold, and what happened.
type compared struct {
	*scenario
	told forecast.Forecast
	// verdict of the real drain, how long it took, and who held up which pods.
	verdict forecast.Verdict
	took    time.Duration
	// ends is when pods were gone, and requests their EvictionRequests then, by namespace/name.
	ends     map[string]time.Time
	requests map[string]*v1alpha1.EvictionRequest
}

// factor is how far the forecast was off, at least 1.
func (c *compared) factor() float64 {
	took, told := c.took.Seconds(), c.told.P50Seconds
	if took <= 0 || told <= 0 {
		return math.Inf(1)
	}
	return max(took/told, told/took)
}

// TestForecastsComeTrue asserts times although no other test does: that a drain takes as long
// as the forecast says is what is promised. Times of drains here are many seconds, so that
// the work of a machine that is alone is small beside them, and the scenarios run one after
// the other. Three of them in CI may be off by far; the ten of `make forecast-compare` not.
func TestForecastsComeTrue(t *testing.T) {
	startManager(t)
	var all []*compared
	for seed := range uint64(*scenarios) {
		s := scenarioOf(seed + 1)
		t.Run(fmt.Sprintf("seed %d", s.seed), func(t *testing.T) {
			all = append(all, compare(t, &s))
		})
	}
	t.Run("pods that leave after others", func(t *testing.T) {
		s := afterOthers()
		c := compare(t, &s)
		c.checkTime(t)
		c.checkOrder(t)
	})
	rows := rowsOf(all)
	t.Logf("\n%s", rows)
	if len(all) != *scenarios {
		t.Fatalf("%d of %d scenarios were compared", len(all), *scenarios)
	}
	const strict = 10
	if *scenarios < strict {
		for _, c := range all {
			c.checkTime(t)
		}
		return
	}
	good := 0
	for _, c := range all {
		if c.factor() <= 1.5 {
			good++
		}
	}
	if want := (*scenarios*9 + 9) / 10; good < want {
		t.Errorf("%d of %d forecasts were within a factor of 1.5, want %d", good, *scenarios, want)
	}
	if *table != "" && !t.Failed() {
		writeTable(t, *table, rows)
	}
}

// checkTime is lenient.
func (c *compared) checkTime(t *testing.T) {
	t.Helper()
	if low, high := c.told.P50Seconds/3-20, c.told.P50Seconds*3+20; c.took.Seconds() < low || c.took.Seconds() > high {
		t.Errorf("seed %d took %s, and %.1f s were foretold", c.seed, c.took.Round(100*time.Millisecond), c.told.P50Seconds)
	}
}

// checkOrder checks that pods left after those for whom the forecast says that they wait, or at their
// timeout, and that the controller gave the same reasons.
func (c *compared) checkOrder(t *testing.T) {
	t.Helper()
	said, told := map[string]int{}, map[string]float64{}
	for _, p := range c.told.Pods {
		told[p.Namespace+"/"+p.Name] = p.EndSeconds
	}
	for _, p := range c.told.Pods {
		var ends, stays []string
		for _, name := range p.WaitsFor {
			if slices.Contains(p.TimedOut, name) {
				stays = append(stays, name)
			} else if ends = append(ends, name); c.ends[name].IsZero() || c.ends[name].After(c.ends[p.Namespace+"/"+p.Name]) {
				t.Errorf("pod %s left before %s, for which it was to wait", p.Name, name)
			}
			if told[name] > p.EndSeconds {
				t.Errorf("pod %s is foretold to leave after %.1f s, and %s, for which it waits, after %.1f s", p.Name, p.EndSeconds, name, told[name])
			}
		}
		message := v1alpha1.ReportOf(c.requests[p.Namespace+"/"+p.Name], v1alpha1.OrderInterceptor).Message
		switch {
		case len(stays) > 0:
			said["timeout"]++
			if want := "Not waiting any longer after 25s for 1 pod of node " + p.Node + ": " + stays[0] + "."; message != want {
				t.Errorf("pod %s: %q, want %q", p.Name, message, want)
			}
		case len(ends) > 0:
			said["order"]++
			if want := "No pod is left on node " + p.Node + " that leaves before this one."; message != want {
				t.Errorf("pod %s: %q, want %q", p.Name, message, want)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"order": 2, "timeout": 1}, said); diff != "" {
		t.Errorf("pods that wait for others, and why they go (-want +foretold):\n%s", diff)
	}
}

// compare makes a scenario, asks for the forecast, and drains.
func compare(t *testing.T, s *scenario) *compared {
	t.Helper()
	t.Logf("seed %d: %s", s.seed, s)
	w := build(t, s)
	t.Cleanup(func() { endMaintenances(t) })
	seen := watchPods(t, w)
	flags := []string{fmt.Sprintf("--max-parallel=%d", s.parallel)}
	c := &compared{scenario: s, ends: map[string]time.Time{}, requests: map[string]*v1alpha1.EvictionRequest{}}
	told := run(t, slices.Concat([]string{"forecast"}, w.nodes, flags, []string{"-o", "json", fmt.Sprintf("--seed=%d", s.seed)})...)
	if err := json.Unmarshal(told, &c.told); err != nil {
		t.Fatalf("read the forecast: %v\n%s", err, told)
	}
	if c.told.Verdict == forecast.Unknown {
		t.Fatalf("there is no history although it was made: %s", c.told.Headline)
	}
	began := time.Now()
	run(t, slices.Concat([]string{"drain"}, w.nodes, flags, []string{"--wait=false", "--reason=compare with the forecast"})...)

	going := len(seen.pods) - len(c.told.Blockers)
	eventually(t, fmt.Sprintf("%d of %d pods to go", going, len(seen.pods)), func(context.Context) error { return seen.went(going) })
	wanted, got := w.held(t, seen, c.told.Blockers)
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("who blocks which workload, foretold (-) and really (+):\n%s", diff)
	}
	gone := seen.ends()
	c.verdict = forecast.Done
	if len(gone) < len(seen.pods) {
		c.verdict = forecast.Blocked
	}
	if c.verdict != c.told.Verdict {
		t.Errorf("the drain is %s, and was foretold to be %s: %s", c.verdict, c.told.Verdict, c.told.Headline)
	}
	for _, end := range gone {
		c.took = max(c.took, end.Sub(began))
	}
	for i := range seen.list {
		pod, er := &seen.list[i], &v1alpha1.EvictionRequest{}
		if at, ok := gone[pod.UID]; ok {
			c.ends[pod.Namespace+"/"+pod.Name] = at
		}
		if err := admin.Get(t.Context(), v1alpha1.RequestKey(pod), er); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		c.requests[pod.Namespace+"/"+pod.Name] = er
	}
	t.Logf("took %.1f s; %s", c.took.Seconds(), c.told.Headline)
	for _, p := range c.told.Pods {
		if i := slices.IndexFunc(seen.list, func(pod corev1.Pod) bool { return pod.Name == p.Name && pod.Namespace == p.Namespace }); i >= 0 {
			end := "never"
			if at, ok := gone[seen.list[i].UID]; ok {
				end = fmt.Sprintf("%.1f s", at.Sub(began).Seconds())
			}
			t.Logf("  %-30s on %s: foretold %5.1f to %5.1f s (p95 %5.1f), really %s; %v", p.Name, p.Node, p.StartSeconds, p.EndSeconds, p.EndP95Seconds, end, p.Turns)
		}
	}
	for _, h := range c.told.History {
		t.Logf("  %s %s: %d samples, p50 %.1f s, p95 %.1f s", h.Kind, h.Name, h.Samples, h.P50Seconds, h.P95Seconds)
	}
	return c
}

// held returns who holds up how many pods of which workload: by the forecast, and by the
// requests of the pods that did not go, as soon as these agree. Which pods of a workload go
// first is up to chance.
func (w *world) held(t *testing.T, seen *sight, blockers []forecast.Blocker) (wanted, got map[string]int) {
	t.Helper()
	wanted = map[string]int{}
	loads := map[string]string{}
	for i := range seen.list {
		loads[seen.list[i].Name] = seen.list[i].Labels[builder.AppLabel]
	}
	for _, b := range blockers {
		wanted[loads[b.Pod]+" by "+b.Who]++
	}
	eventually(t, "the requests of the pods that did not go to be refused", func(ctx context.Context) error {
		got = map[string]int{}
		gone := seen.ends()
		for i := range seen.list {
			pod := &seen.list[i]
			if _, ok := gone[pod.UID]; ok {
				continue
			}
			er := &v1alpha1.EvictionRequest{}
			if err := admin.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
				return err
			}
			refusal := v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor).Refusal
			if refusal == nil || len(refusal.Budgets) != 1 {
				return fmt.Errorf("pod %s: %+v", pod.Name, er.Status.Interceptors)
			}
			got[loads[pod.Name]+" by PodDisruptionBudget "+refusal.Budgets[0]]++
		}
		return nil
	})
	return wanted, got
}

// sight is what a watch has seen of the pods to go.
type sight struct {
	list []corev1.Pod
	pods map[types.UID]bool

	mu   sync.Mutex
	gone map[types.UID]time.Time
	err  error
}

// watchPods notes when the pods of the nodes are gone, until the end of the test.
func watchPods(t *testing.T, w *world) *sight {
	t.Helper()
	s := &sight{pods: map[types.UID]bool{}, gone: map[types.UID]time.Time{}}
	list := &corev1.PodList{}
	if err := admin.List(t.Context(), list, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if slices.Contains(w.nodes, list.Items[i].Spec.NodeName) {
			s.list, s.pods[list.Items[i].UID] = append(s.list, list.Items[i]), true
		}
	}
	watched, err := admin.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(w.namespace))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range watched.ResultChan() {
			s.note(e)
		}
	}()
	t.Cleanup(func() {
		watched.Stop()
		<-ended
	})
	return s
}

func (s *sight) note(e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch pod, ok := e.Object.(*corev1.Pod); {
	case !ok:
		s.err = fmt.Errorf("the watch of pods says %s: %v", e.Type, e.Object)
	case e.Type == watch.Deleted && s.pods[pod.UID]:
		s.gone[pod.UID] = time.Now()
	}
}

// ends are when the pods were gone.
func (s *sight) ends() map[types.UID]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gone)
}

// went is nil when so many pods are gone.
func (s *sight) went(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if len(s.gone) >= n {
		return nil
	}
	var left []string
	for i := range s.list {
		if _, ok := s.gone[s.list[i].UID]; !ok {
			left = append(left, s.list[i].Name)
		}
	}
	return fmt.Errorf("%s are left", strings.Join(left, ", "))
}

// rowsOf is the table of the documentation.
func rowsOf(all []*compared) string {
	var b strings.Builder
	b.WriteString("| Seed | What is in it | Verdict | p50 | p95 | Real | Factor |\n|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %d | %s | %s | %.0f s | %.0f s | %.0f s | %.2f |\n",
			c.seed, c.scenario, c.told.Verdict, c.told.P50Seconds, c.told.P95Seconds, c.took.Seconds(), c.took.Seconds()/c.told.P50Seconds)
	}
	return b.String()
}

// writeTable replaces what is between the markers of the page.
func writeTable(t *testing.T, path, rows string) {
	t.Helper()
	const begin, end = "<!-- forecast-table -->", "<!-- /forecast-table -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s and %s", path, begin, end)
	}
	if err := os.WriteFile(path, []byte(before+begin+"\n"+rows+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
