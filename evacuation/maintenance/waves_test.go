package maintenance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// inWave is a node whose wave has begun at noon, with so many pods before all waves, in the first
// one, and so on.
func inWave(wave int, pods ...int32) maintenance.NodeFacts {
	n := facts("a", drain, 0)
	n.Empty, n.Wave, n.WaveSince, n.Waves = false, wave, noon, pods
	for _, count := range pods {
		n.Pods.Pending += count
	}
	return n
}

func TestWhichWaveBegins(t *testing.T) {
	spec := v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true, Waves: []v1alpha1.MaintenanceWave{
		{Name: "db", Timeout: &metav1.Duration{Duration: 10 * time.Minute}}, {Name: "network"}, {Name: "storage"},
	}}
	cordoned := inWave(0, 0, 1, 0, 0)
	cordoned.Stage = cordon
	unknown := inWave(0, 0, 1, 0, 0)
	unknown.Waves = nil
	unconfirmed := inWave(0, 0, 1, 0, 0)
	unconfirmed.Unconfirmed = true
	behind := func(n maintenance.NodeFacts, empty bool) maintenance.NodeFacts {
		n.Behind, n.Empty = true, empty
		return n
	}
	done := inWave(1)
	done.Stage = drained
	cases := map[string]struct {
		node  maintenance.NodeFacts
		after time.Duration
		// want is the name of the wave that begins; empty if none does.
		want string
		left int32
		wake time.Duration
	}{
		"pods that no wave selects go first":                        {node: inWave(0, 2, 1, 0, 1), after: time.Hour},
		"then the first wave":                                       {node: inWave(0, 0, 1, 0, 1), want: "db"},
		"a wave without pods is skipped":                            {node: inWave(0, 0, 0, 0, 1), want: "storage"},
		"without pods nothing begins":                               {node: inWave(0, 0, 0, 0, 0)},
		"pods of the wave are there":                                {node: inWave(2, 0, 0, 1, 1), after: time.Hour},
		"the last wave":                                             {node: inWave(3, 0, 0, 0, 1), after: time.Hour},
		"the wave has some time left":                               {node: inWave(1, 0, 1, 1, 0), after: 9 * time.Minute, wake: 10 * time.Minute},
		"its time is over":                                          {node: inWave(1, 0, 1, 1, 0), after: 10 * time.Minute, want: "network", left: 1},
		"its time is over, and nobody waits":                        {node: inWave(1, 0, 1, 0, 0), after: 10 * time.Minute},
		"it has some time left, and nobody waits":                   {node: inWave(1, 0, 1, 0, 0), after: time.Minute},
		"its time is over, and pods before all came":                {node: inWave(1, 1, 1, 1, 0), after: time.Hour},
		"nobody waits for what has had its time":                    {node: inWave(2, 0, 2, 0, 1), want: "storage", left: 2},
		"a pod that came late is waited for":                        {node: inWave(2, 1, 0, 0, 1), after: time.Hour},
		"a node whose drain has not begun":                          {node: cordoned},
		"a node whose pods are not known":                           {node: unknown},
		"a node whose pods nobody has confirmed yet":                {node: unconfirmed},
		"those of the last are kept away, and others are there":     {node: behind(inWave(0, 2, 0, 0, 0), false)},
		"those of the last are kept away, and others may be there":  {node: behind(inWave(0), false)},
		"those of the last are kept away, and no others are there":  {node: behind(inWave(0), true), want: "storage"},
		"those of the last are kept away from a drained node":       {node: behind(done, false), want: "storage"},
		"those of the last are kept away, and late ones are there":  {node: behind(inWave(1, 1, 0, 0, 0), false)},
		"those of the last are kept away from a node not yet begun": {node: behind(cordoned, false)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(tc.after)
			got := maintenance.PlanStep(maintenance.PlanInput{Spec: spec, Nodes: []maintenance.NodeFacts{tc.node}, Now: now})
			want := map[string]maintenance.WaveBegin{}
			if tc.want != "" {
				want["a"] = maintenance.WaveBegin{BegunWave: translate.BegunWave{Name: tc.want, Since: now}, Left: tc.left}
			}
			if diff := cmp.Diff(want, got.Waves, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("waves (-want +got):\n%s", diff)
			}
			var wake time.Time
			if tc.wake > 0 {
				wake = noon.Add(tc.wake)
			}
			if !got.WakeAt.Equal(wake) {
				t.Errorf("wakes at %s, want %s", got.WakeAt, wake)
			}
		})
	}
}

func TestTheStatusSaysWhichWaveHasBegun(t *testing.T) {
	spec := v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true, Waves: []v1alpha1.MaintenanceWave{{Name: "db"}, {Name: "storage"}}}
	begun := v1alpha1.NodeMaintenanceStatus{StartTime: &metav1.Time{Time: noon}}
	got := maintenance.PlanStep(maintenance.PlanInput{Spec: spec, Nodes: []maintenance.NodeFacts{inWave(1, 0, 1, 2)}, Status: begun, Now: noon}).Status
	if got.Nodes[0].Wave != "db" || got.Nodes[0].PodsInLaterWaves != 2 {
		t.Errorf("node: %+v", got.Nodes[0])
	}
	want := "0 of 1 nodes are drained, 3 pods are still to go, 2 of them wait for an earlier wave."
	if diff := cmp.Diff(want, meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionDrained).Message); diff != "" {
		t.Errorf("condition Drained (-want +got):\n%s", diff)
	}
}

// order is a model of one node: how many pods each wave has, which wave has begun, and for how
// many minutes, at most 2.
type order struct {
	wave, minutes int
	pods          [4]int32
	// arrivals is how many pods may still come.
	arrivals int
}

// orders are the rules of one run: which waves have a timeout, of a minute, and of which no pod
// ever goes.
type orders struct {
	spec  v1alpha1.NodeMaintenanceSpec
	stuck [4]bool
}

func ordersOf(timeouts, stuck int) orders {
	o := orders{spec: v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true}}
	for i := range o.stuck {
		o.stuck[i] = stuck&(1<<i) != 0
		if i == 0 {
			continue
		}
		wave := v1alpha1.MaintenanceWave{Name: fmt.Sprintf("w%d", i)}
		if timeouts&(1<<(i-1)) != 0 {
			wave.Timeout = &metav1.Duration{Duration: time.Minute}
		}
		o.spec.Waves = append(o.spec.Waves, wave)
	}
	return o
}

func (o orders) timed(wave int) bool { return wave > 0 && o.spec.Waves[wave-1].Timeout != nil }

// plan does what PlanStep decides. Problem is what is wrong with that.
func (o orders) plan(s order) (next order, problem string) {
	if s.pods == [4]int32{} {
		return s, ""
	}
	node := inWave(s.wave, s.pods[:]...)
	d := maintenance.PlanStep(maintenance.PlanInput{Spec: o.spec, Nodes: []maintenance.NodeFacts{node}, Now: noon.Add(time.Duration(s.minutes) * time.Minute)})
	begin, ok := d.Waves["a"]
	if !ok {
		return s, ""
	}
	next = s
	next.minutes = 0
	if _, err := fmt.Sscanf(begin.Name, "w%d", &next.wave); err != nil {
		return s, err.Error()
	}
	if next.wave <= s.wave || s.pods[next.wave] == 0 {
		return s, "it is not a later one with pods"
	}
	for wave := range next.wave {
		switch {
		case s.pods[wave] == 0:
		case wave > s.wave:
			return s, fmt.Sprintf("wave %d is passed over", wave)
		case !o.timed(wave), wave == s.wave && s.minutes == 0:
			return s, fmt.Sprintf("wave %d is not waited for", wave)
		}
	}
	return next, ""
}

// moves are what can happen besides.
func (o orders) moves(s order) []order {
	var all []order
	for wave := range s.pods {
		if wave <= s.wave && s.pods[wave] > 0 && !o.stuck[wave] {
			left := s
			left.pods[wave]--
			all = append(all, left)
		}
		if s.arrivals > 0 {
			came := s
			came.pods[wave]++
			came.arrivals--
			all = append(all, came)
		}
	}
	if s.minutes < 2 {
		later := s
		later.minutes++
		all = append(all, later)
	}
	return all
}

// end is what becomes of a state when nobody comes any more and time passes. Known are earlier
// answers.
func (o orders) end(s order, known map[order]order) order {
	s.arrivals = 0
	if end, ok := known[s]; ok {
		return end
	}
	next, _ := o.plan(s)
	for wave := range next.wave + 1 {
		if !o.stuck[wave] {
			next.pods[wave] = 0
		}
	}
	next.minutes = min(next.minutes+1, 2)
	if next != s {
		next = o.end(next, known)
	}
	known[s] = next
	return next
}

// stays is what is wrong with the end of a drain: a pod that could go has not, and no wave before
// it holds it for good.
func (o orders) stays(s order) string {
	held := false
	for wave, pods := range s.pods {
		if pods > 0 && !o.stuck[wave] && !held {
			return fmt.Sprintf("a pod of wave %d stays", wave)
		}
		held = held || pods > 0 && o.stuck[wave] && !o.timed(wave)
	}
	return ""
}

// In every order of events, with pods that come late and pods that never go: no wave begins too
// early, and each drain ends, unless a pod that never goes is waited for without a timeout.
func TestEveryDrainByWavesEnds(t *testing.T) {
	states := 0
	for timeouts := range 1 << 3 {
		for stuck := range 1 << 4 {
			o := ordersOf(timeouts, stuck)
			seen, known := map[order]bool{}, map[order]order{}
			var todo []order
			for pods := range 1 << 4 {
				s := order{arrivals: 1}
				for wave := range s.pods {
					s.pods[wave] = int32(pods >> wave & 1)
				}
				todo = append(todo, s)
			}
			for len(todo) > 0 {
				s := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				if seen[s] {
					continue
				}
				seen[s] = true
				next, problem := o.plan(s)
				if problem == "" {
					problem = o.stays(o.end(s, known))
				}
				if problem != "" {
					t.Fatalf("timeouts %03b, stuck %04b, state %+v: %s", timeouts, stuck, s, problem)
				}
				todo = append(append(todo, next), o.moves(s)...)
			}
			states += len(seen)
		}
	}
	t.Logf("%d states", states)
}

// What stays for good is seen, or the exploration would prove nothing.
func TestADrainThatDoesNotEndIsFound(t *testing.T) {
	o := ordersOf(0b010, 0b0100)
	if got := o.stays(order{wave: 2, pods: [4]int32{0, 0, 1, 1}}); !strings.Contains(got, "wave 3 stays") {
		t.Errorf("a pod behind a wave with a timeout: %q", got)
	}
	if got := o.stays(order{wave: 1, pods: [4]int32{0, 1, 0, 0}}); !strings.Contains(got, "wave 1 stays") {
		t.Errorf("a pod that could go: %q", got)
	}
	o = ordersOf(0, 0b0100)
	if got := o.stays(order{wave: 2, pods: [4]int32{0, 0, 1, 1}}); got != "" {
		t.Errorf("a pod behind a wave without a timeout: %q", got)
	}
}
