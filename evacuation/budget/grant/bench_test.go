package grant

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// crowd is a budget of so many pods in ten zones.
func crowd(n int) Budget {
	b := Budget{
		Name: "crowd", Expected: map[types.UID]int{},
		Rules: Rules{Grouped: true, MaxGroups: 1, MaxUnavailable: intstr.FromString("100%"), Settle: time.Minute},
	}
	for i := range n {
		p := podOf(fmt.Sprintf("z%d-%d", i%10, i/10))
		b.Pods = append(b.Pods, p)
		b.Expected[p.Owner]++
	}
	return b
}

// BenchmarkStep is what an event of a pod costs, and one of a request.
func BenchmarkStep(b *testing.B) {
	for _, pods := range []int{100, 20_000} {
		for _, waiting := range []int{0, 100} {
			b.Run(fmt.Sprintf("%d pods, %d requests", pods, waiting), func(b *testing.B) {
				budget := crowd(pods)
				var all []Request
				for i := range waiting {
					all = append(all, request(string(budget.Pods[i].UID), time.Hour-time.Duration(i)*time.Second))
				}
				in := Input{Budgets: []Budget{budget}, Requests: all, Now: noon}
				b.ReportAllocs()
				for b.Loop() {
					if d := Step(in); len(d.Granted)+len(d.Waiting) != waiting {
						b.Fatal("a request is missing")
					}
				}
			})
		}
	}
}

// BenchmarkAt is what windows add to each step: a night, and openings without an end.
func BenchmarkAt(b *testing.B) {
	for _, s := range []spec{
		{"0 22 * * MON-FRI", "Europe/Berlin", 6 * time.Hour},
		{"0 0 * * *", "Europe/Berlin", 24 * time.Hour},
		{"* * * * *", "Europe/Berlin", 168 * time.Hour},
	} {
		b.Run(s.schedule+" for "+s.duration.String(), func(b *testing.B) {
			ws := windows(b, s)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ws.At(noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
