//go:build unix

package main

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestTheFloorKeepsLittleOfAPod(t *testing.T) {
	pod := builder.Pod("shop", "web-1").UID("uid-1").Node("n1").Label("app", "web").Phase(corev1.PodRunning).
		Change(func(p *corev1.Pod) {
			p.ResourceVersion, p.Annotations, p.Spec.Containers = "7", map[string]string{"a": "b"}, []corev1.Container{{Name: "web"}}
		}).Obj()
	got, err := bare(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := &barePod{node: "n1", phase: corev1.PodRunning}
	want.Name, want.Namespace, want.UID, want.Labels, want.ResourceVersion = "web-1", "shop", "uid-1", map[string]string{"app": "web"}, "7"
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(barePod{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEvictionsHaveTheirGoalsAgainstTheLeastAddOn(t *testing.T) {
	side := func(rate float64, cpu time.Duration) []lives { return []lives{{rate: rate, cpu: cpu}} }
	tests := map[string]struct {
		ours []lives
		want []string
	}{
		"nearly as many, for little more": {side(97, 1150*time.Microsecond), []string{">= 0.97 yes", "<= 1.15 yes", "", ""}},
		"too few":                         {side(96, time.Millisecond), []string{">= 0.97 **no**", "<= 1.15 yes", "", ""}},
		"for too much":                    {side(100, 1160*time.Microsecond), []string{">= 0.97 yes", "<= 1.15 **no**", "", ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range evictionLines(side(200, 0), side(150, 0), side(100, time.Millisecond), tt.ours) {
				got = append(got, goalOf(l))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheGoalOfTheWebhookIsTheTrivialOnesP99(t *testing.T) {
	// Of 100 calls, so many took between 5 and 25 ms, all others less.
	slow := func(n float64) histogram {
		return histogram{buckets: map[float64]float64{0.005: 100 - n, 0.025: 100, math.Inf(1): 100}, sum: 1, count: 100}
	}
	tests := map[string]struct {
		trivial, ours histogram
		want          string
	}{
		"both fast":            {slow(0), slow(0), "p99 <= 1.1 yes"},
		"both slow":            {slow(50), slow(50), "p99 <= 1.1 yes"},
		"only ours":            {slow(0), slow(50), "p99 <= 1.1 **no**"},
		"only the trivial one": {slow(50), slow(0), "p99 <= 1.1 yes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, goalOf(admissionLine(1, tt.trivial, tt.ours))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// goalOf is what the table says of a goal and whether it is met; empty if there is none.
func goalOf(l line) string {
	if l.met == nil {
		return l.goal
	}
	return l.goal + " " + l.cells()[5]
}
