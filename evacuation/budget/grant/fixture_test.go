package grant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// noon of a Monday.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(after time.Duration) time.Time { return noon.Add(after) }

// change makes a budget different from that of zones.
type change func(b *Budget)

// zones is a budget of three StatefulSets of two pods each, which are available: any number
// of pods of one zone at a time.
func zones(changes ...change) Budget {
	b := Budget{
		Name:     "zones",
		Rules:    Rules{Grouped: true, MaxGroups: 1, MaxUnavailable: intstr.FromString("100%")},
		Expected: map[types.UID]int{"a": 2, "b": 2, "c": 2},
	}
	for _, name := range []string{"a-0", "a-1", "b-0", "b-1", "c-0", "c-1"} {
		b.Pods = append(b.Pods, podOf(name))
	}
	for _, c := range changes {
		c(&b)
	}
	return b
}

// podOf is a pod a-0 of the owner and group a.
func podOf(name string) Pod {
	group, _, _ := strings.Cut(name, "-")
	return Pod{UID: types.UID(name), Owner: types.UID(group), Group: group, Placed: true, Ready: true, ReadySince: at(-time.Hour)}
}

func rules(set func(r *Rules)) change { return func(b *Budget) { set(&b.Rules) } }

// ungrouped makes all pods one group of a Deployment of six.
func ungrouped(maxUnavailable intstr.IntOrString) change {
	return func(b *Budget) {
		b.Rules = Rules{MaxUnavailable: maxUnavailable}
		b.Expected = map[types.UID]int{"web": len(b.Pods)}
		for i := range b.Pods {
			b.Pods[i].Owner, b.Pods[i].Group = "web", ""
		}
	}
}

// pods lets something be different with some of them.
func pods(set func(p *Pod), names ...string) change {
	return func(b *Budget) {
		for _, name := range names {
			i := slices.IndexFunc(b.Pods, func(p Pod) bool { return p.UID == types.UID(name) })
			set(&b.Pods[i])
		}
	}
}

func unready(names ...string) change { return pods(func(p *Pod) { p.Ready = false }, names...) }

func unplaced(names ...string) change {
	return pods(func(p *Pod) { p.Placed, p.Group, p.Ready = false, "", false }, names...)
}

func readyFor(d time.Duration, names ...string) change {
	return pods(func(p *Pod) { p.ReadySince = at(-d) }, names...)
}

func leaving(names ...string) change {
	return pods(func(p *Pod) { p.Leaving, p.LeavingSince = true, at(-time.Minute) }, names...)
}

func with(added ...Pod) change { return func(b *Budget) { b.Pods = append(b.Pods, added...) } }

// away takes pods away, and nobody remembers them.
func away(names ...string) change {
	return func(b *Budget) {
		b.Pods = slices.DeleteFunc(b.Pods, func(p Pod) bool { return slices.Contains(names, string(p.UID)) })
	}
}

// gone takes pods away that are remembered.
func gone(names ...string) change {
	return func(b *Budget) {
		for _, name := range names {
			p := podOf(name)
			b.Gone = append(b.Gone, Gone{Owner: p.Owner, Group: p.Group, At: at(-time.Minute)})
		}
		away(names...)(b)
	}
}

// granted has been granted to pods an hour ago; those that have left meanwhile, too.
func granted(names ...string) change {
	return func(b *Budget) {
		for _, name := range names {
			b.Grants = append(b.Grants, grantOf(name))
		}
	}
}

func grantOf(name string) Grant {
	p := podOf(name)
	return Grant{Pod: p.UID, Request: types.UID("request of " + name), Owner: p.Owner, Group: p.Group, At: at(-time.Hour)}
}

// window opens at a time of every day.
func window(schedule string, d time.Duration) change {
	return func(b *Budget) {
		w, err := ParseWindow(schedule, "UTC", d)
		if err != nil {
			panic(err)
		}
		b.Rules.Windows = append(b.Rules.Windows, w)
	}
}

// requests are for these pods, each a second younger than the one before.
func requests(names ...string) (all []Request) {
	for i, name := range names {
		all = append(all, request(name, time.Hour-time.Duration(i)*time.Second))
	}
	return all
}

func request(name string, age time.Duration) Request {
	return Request{UID: types.UID("request of " + name), Pod: types.UID(name), Created: at(-age), Name: name}
}

// outcome is what matters of a decision about one budget.
type outcome struct {
	// Granted are pods, and Waiting pods with the reason.
	Granted, Waiting []string
	// Groups with available and expected pods.
	Groups  []string
	Allowed int
	// WakeAt is from noon; zero is never.
	WakeAt time.Duration
}

func outcomeOf(d Decision) outcome {
	o := outcome{Allowed: d.States[0].Allowed}
	for _, g := range d.Granted {
		o.Granted = append(o.Granted, string(g.Pod))
	}
	for _, w := range d.Waiting {
		o.Waiting = append(o.Waiting, strings.TrimPrefix(string(w.Request), "request of ")+": "+w.Reason)
	}
	for _, g := range d.States[0].Groups {
		o.Groups = append(o.Groups, fmt.Sprintf("%q: %d of %d", g.Name, g.Available, g.Expected))
	}
	if !d.WakeAt.IsZero() {
		o.WakeAt = d.WakeAt.Sub(noon)
	}
	return o
}
