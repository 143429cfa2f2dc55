// Package audit checks, after a run of tests, every write of the manager, and finds loops:
// writers that write one object again and again without a reason.
//
// A writer is an account with a field manager (or none, which most controllers have), a
// verb and a subresource: that is as near to a controller as the log of requests comes.
// What counts as a write is every request that is not a dry run, also one that was
// refused: a writer that is refused a thousand times a minute is in a loop, too. Reviews
// store nothing and do not count.
//
// A writer may write an object Limit times within a minute, and once more for each change
// that anyone else made meanwhile
//   - to that object, or
//   - if it is a pod, to its EvictionRequest, and the other way round,
//   - if it is an EvacuationHook or an EvictionBudget, in which is recorded what is done for
//     each pod, to the EvictionRequests of its namespace.
//
// Anyone else is any other writer, including our others. But each of them excuses at most
// Limit writes a minute: two writers that change an object in turns endlessly are a fight,
// which is a loop of both. A retry after a conflict is excused by the change that it
// conflicted with, a restart of the manager by its start: a new life may write what the
// one before wrote.
//
// The minutes are those of the manager's clock: a test that advances it by a minute lets
// it do the work of a minute.
//
// Options.Heartbeat excludes periodic renewals, such as leader election. The other leases,
// and the reports of interceptors, which are heartbeats as well, are slow enough to be
// judged like everything else.
package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Limit is how often a writer may write an object within a minute while nothing else
// changes.
const Limit = 12

// window is that minute.
const window = time.Minute

// Options of an audit.
type Options struct {
	// Ours reports whether a user is the manager.
	Ours func(user string) bool
	// Heartbeat reports whether a write is to be left out; nil for none.
	Heartbeat func(cluster.Request) bool
	// Advances of the manager's clock, in any order. One that was set back gave nobody
	// time and does not count.
	Advances []clock.Advance
}

// Object is what is written. A name that the server made up is empty.
type Object struct{ Group, Resource, Namespace, Name string }

func (o Object) String() string {
	resource := o.Resource
	if o.Group != "" {
		resource += "." + o.Group
	}
	return resource + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// Writer is who writes, and how.
type Writer struct{ User, Manager, Verb, Subresource string }

func (w Writer) String() string {
	s := w.User
	if w.Manager != "" {
		s += " as " + w.Manager
	}
	s += ", " + w.Verb
	if w.Subresource != "" {
		s += " " + w.Subresource
	}
	return s
}

// Loop is what a writer did to an object within a minute.
type Loop struct {
	Object Object
	Writer Writer
	// From is the first of the writes, on the API server's clock.
	From time.Time
	// Writes within the minute.
	Writes int
	// Excused are those that changes by others excuse.
	Excused int
	// Codes are the answers of the first of them.
	Codes []int
}

func (l Loop) String() string {
	return fmt.Sprintf("%s: %d writes within a minute from %s, of which changes by others excuse %d (%s; answers %v)",
		l.Object, l.Writes, l.From.Format(time.TimeOnly), l.Excused, l.Writer, l.Codes)
}

// write is a request that counts.
type write struct {
	at      time.Time // On the manager's clock.
	request cluster.Request
	writer  Writer
}

// Loops returns the loops in a log of requests, one for each writer and object at most,
// the greatest first.
func Loops(log cluster.Requests, o Options) []Loop {
	b := gather(log, o)
	var loops []Loop
	for object, writes := range b.ours {
		for writer, mine := range writes {
			if loop, ok := b.judge(object, writer, mine); ok {
				loops = append(loops, loop)
			}
		}
	}
	slices.SortFunc(loops, func(a, b Loop) int {
		return cmp.Or(cmp.Compare(b.Writes, a.Writes), cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Writer.String(), b.Writer.String()))
	})
	return loops
}

// book is what was written.
type book struct {
	// ours are the writes to judge.
	ours map[Object]map[Writer][]write
	// changes are what anybody has changed.
	changes map[Object][]write
	// partner is the pod of a request, and the request of a pod.
	partner map[Object][]Object
	// starts are when a manager began to run.
	starts []time.Time
}

func gather(log cluster.Requests, o Options) *book {
	b := &book{ours: map[Object]map[Writer][]write{}, changes: map[Object][]write{}, partner: map[Object][]Object{}}
	managers := newScale(o.Advances)
	for _, r := range log {
		if r.Resource == "" || !r.Writes() || r.DryRun {
			continue
		}
		ours := o.Ours(r.User)
		if stores := !strings.HasSuffix(r.Resource, "reviews"); !stores {
			if ours && r.Resource == "selfsubjectreviews" {
				b.starts = append(b.starts, managers.of(r.Time))
			}
			continue
		}
		object := Object{r.Group, r.Resource, r.Namespace, r.Name}
		w := write{at: managers.of(r.Time), request: r, writer: Writer{r.User, managerOf(r), r.Verb, r.Subresource}}
		b.pair(object, r)
		if 200 <= r.Code && r.Code < 300 {
			b.changes[object] = append(b.changes[object], w)
		}
		if !ours || o.Heartbeat != nil && o.Heartbeat(r) {
			continue
		}
		if b.ours[object] == nil {
			b.ours[object] = map[Writer][]write{}
		}
		b.ours[object][w.writer] = append(b.ours[object][w.writer], w)
	}
	for object := range b.ours {
		if object.Group == v1alpha1.GroupName && (object.Resource == "evacuationhooks" || object.Resource == "evictionbudgets") {
			b.partner[object] = b.requestsIn(object.Namespace)
		}
	}
	return b
}

// requestsIn are the EvictionRequests of a namespace that were written.
func (b *book) requestsIn(namespace string) (requests []Object) {
	for object := range b.changes {
		if object.Group == v1alpha1.GroupName && object.Resource == "evictionrequests" && object.Namespace == namespace {
			requests = append(requests, object)
		}
	}
	return requests
}

// pair learns from a request's body which pod it is about.
func (b *book) pair(object Object, r cluster.Request) {
	if r.Group != v1alpha1.GroupName || r.Resource != "evictionrequests" || len(r.Body) == 0 {
		return
	}
	var body struct {
		Spec struct {
			Target struct {
				Pod *struct{ Name string } `json:"pod"`
			} `json:"target"`
		} `json:"spec"`
	}
	if json.Unmarshal(r.Body, &body) != nil || body.Spec.Target.Pod == nil {
		return // A patch in another format, or of something else.
	}
	pod := Object{Resource: "pods", Namespace: r.Namespace, Name: body.Spec.Target.Pod.Name}
	if !slices.Contains(b.partner[object], pod) {
		b.partner[object] = append(b.partner[object], pod)
		b.partner[pod] = append(b.partner[pod], object)
	}
}

// judge returns the worst minute of a writer and an object, if that is a loop.
func (b *book) judge(object Object, writer Writer, mine []write) (Loop, bool) {
	slices.SortFunc(mine, func(a, b write) int { return a.at.Compare(b.at) })
	var worst Loop
	first := 0
	for last := range mine {
		for !mine[last].at.Before(mine[first].at.Add(window)) {
			first++
		}
		n := last - first + 1
		if n <= Limit {
			continue
		}
		excused := b.excused(object, writer, mine[last].at)
		if n-excused > Limit && n-excused > worst.Writes-worst.Excused {
			worst = Loop{Object: object, Writer: writer, From: mine[first].request.Time, Writes: n, Excused: excused}
			for _, w := range mine[first:min(first+Limit, last+1)] {
				worst.Codes = append(worst.Codes, w.request.Code)
			}
		}
	}
	return worst, worst.Writes > 0
}

// excused is how many writes up to then are excused by what others did within a minute
// before.
func (b *book) excused(object Object, by Writer, until time.Time) int {
	recent := func(at time.Time) bool { return !at.After(until) && at.After(until.Add(-window)) }
	type change struct {
		object Object
		writer Writer
	}
	counts := map[change]int{}
	for _, o := range append([]Object{object}, b.partner[object]...) {
		for _, w := range b.changes[o] {
			if recent(w.at) && (o != object || w.writer != by) {
				counts[change{o, w.writer}]++
			}
		}
	}
	excused := 0
	for _, n := range counts {
		excused += min(n, Limit)
	}
	for _, at := range b.starts {
		if recent(at) {
			excused++
		}
	}
	return excused
}

// managerOf is the field manager that the client has named.
func managerOf(r cluster.Request) string {
	parsed, err := url.ParseRequestURI(r.URI)
	if err != nil {
		return ""
	}
	return parsed.Query().Get("fieldManager")
}

// scale turns times of the API server's clock into those of the manager's.
type scale []clock.Advance

func newScale(advances []clock.Advance) scale {
	s := slices.DeleteFunc(slices.Clone(advances), func(a clock.Advance) bool { return a.By <= 0 })
	slices.SortFunc(s, func(a, b clock.Advance) int { return a.At.Compare(b.At) })
	return s
}

func (s scale) of(at time.Time) time.Time {
	var ahead time.Duration
	for _, advance := range s {
		if advance.At.After(at) {
			break
		}
		ahead += advance.By
	}
	return at.Add(ahead)
}
