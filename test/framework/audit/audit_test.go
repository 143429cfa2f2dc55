package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const us, them = "system:serviceaccount:ours:drawbridge", "kubernetes-admin"

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func options(advances ...clock.Advance) Options {
	return Options{
		Ours:      func(user string) bool { return user == us },
		Heartbeat: func(r cluster.Request) bool { return r.Name == "drawbridge-leader" },
		Advances:  advances,
	}
}

// patch is a patch of the pod web-1, n seconds after t0.
func patch(n int, change ...func(*cluster.Request)) cluster.Request {
	r := cluster.Request{
		Time: t0.Add(time.Duration(n) * time.Second), User: us, Verb: "patch", Resource: "pods", Namespace: "shop", Name: "web-1",
		URI: "/api/v1/namespaces/shop/pods/web-1?fieldManager=guard.drawbridge.dev", Code: 200,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func by(user string) func(*cluster.Request) {
	return func(r *cluster.Request) { r.User, r.URI = user, "/api/v1/namespaces/shop/pods/web-1" }
}

func answered(code int) func(*cluster.Request) { return func(r *cluster.Request) { r.Code = code } }

// request makes it the same for the request of the pod.
func request(r *cluster.Request) {
	r.Group, r.Resource, r.Name = "drawbridge.dev", "evictionrequests", "uid-1"
	r.URI = "/apis/drawbridge.dev/v1alpha1/namespaces/shop/evictionrequests/uid-1"
}

// hook makes it the same for a hook.
func hook(r *cluster.Request) {
	r.Group, r.Resource, r.Name = "drawbridge.dev", "evacuationhooks", "dump"
}

// another makes each of them of an object of its own.
func another(i int, r *cluster.Request) { r.Name = fmt.Sprintf("%s-%d", r.Name, i) }

func named(r *cluster.Request) {
	r.Body = []byte(`{"spec":{"target":{"pod":{"name":"web-1","uid":"uid-1"}}}}`)
}

// times repeats something, so many seconds apart.
func times(n, apart int, change ...func(*cluster.Request)) cluster.Requests {
	var log cluster.Requests
	for i := range n {
		log = append(log, patch(i*apart, change...))
	}
	return log
}

// inTurns puts logs together in the order of their times.
func inTurns(logs ...cluster.Requests) cluster.Requests {
	var all cluster.Requests
	for _, log := range logs {
		all = append(all, log...)
	}
	return all
}

func TestLoops(t *testing.T) {
	tests := map[string]struct {
		log      cluster.Requests
		advances []clock.Advance
		want     string // Of the first loop, up to its answers; empty for none.
	}{
		"as often as one may":                   {log: times(12, 1)},
		"once more":                             {log: times(13, 1), want: "pods shop/web-1: 13 writes within a minute from 12:00:00, of which changes by others excuse 0"},
		"slowly, for long":                      {log: times(100, 6)},
		"a little too fast, for long":           {log: times(100, 4), want: "pods shop/web-1: 15 writes within a minute from 12:00:00, of which changes by others excuse 0"},
		"somebody else does":                    {log: times(100, 1, by(them))},
		"refused each time":                     {log: times(20, 1, answered(409)), want: "pods shop/web-1: 20 writes within a minute"},
		"dry runs":                              {log: times(100, 1, func(r *cluster.Request) { r.DryRun = true })},
		"reads":                                 {log: times(100, 1, func(r *cluster.Request) { r.Verb = "get" })},
		"reviews":                               {log: times(100, 1, func(r *cluster.Request) { r.Resource, r.Verb = "selfsubjectaccessreviews", "create" })},
		"a heartbeat":                           {log: times(100, 1, func(r *cluster.Request) { r.Resource, r.Name = "leases", "drawbridge-leader" })},
		"another pod each time":                 {log: each(times(100, 1), func(i int, r *cluster.Request) { r.Name = fmt.Sprintf("web-%d", i) })},
		"two writers, each as often as one may": {log: inTurns(times(12, 1), times(12, 1, func(r *cluster.Request) { r.URI = "" }))},
		"what others have changed":              {log: inTurns(times(20, 1, by(them)), times(20, 1)), want: ""},
		"what others were refused": {
			log:  inTurns(times(20, 1, by(them), answered(403)), times(20, 1)),
			want: "pods shop/web-1: 20 writes within a minute from 12:00:00, of which changes by others excuse 0",
		},
		"a fight with somebody else": {
			log:  inTurns(times(59, 1, by(them)), times(59, 1)),
			want: "pods shop/web-1: 59 writes within a minute from 12:00:00, of which changes by others excuse 12",
		},
		"a fight of two of ours": {
			log:  inTurns(times(59, 1, func(r *cluster.Request) { r.URI += ".other" }), times(59, 1)),
			want: "pods shop/web-1: 59 writes within a minute from 12:00:00, of which changes by others excuse 12",
		},
		"what others changed of its request":        {log: inTurns(times(1, 1, request, named, by(them)), times(12, 1, request, by(them)), times(20, 1))},
		"of the request of another pod":             {log: inTurns(times(13, 1, request, by(them)), times(20, 1)), want: "pods shop/web-1: 20 writes within a minute"},
		"a request, when its pod changes":           {log: inTurns(times(1, 1, request, named), times(12, 1, by(them)), times(20, 1, request))},
		"a hook, for the requests of its namespace": {log: inTurns(each(times(12, 1, request), another), times(20, 1, hook))},
		"a hook, for those of another namespace": {
			log:  inTurns(each(times(12, 1, request), another), times(20, 1, hook, func(r *cluster.Request) { r.Namespace = "bank" })),
			want: "evacuationhooks.drawbridge.dev bank/dump: 20 writes within a minute from 12:00:00, of which changes by others excuse 0",
		},
		"a minute of the manager's for each write": {log: times(59, 1), advances: everySecond(time.Minute)},
		"a moment of the manager's for each write": {log: times(59, 1), advances: everySecond(time.Millisecond), want: "pods shop/web-1: 59 writes"},
		"a clock that is set back":                 {log: times(59, 1), advances: everySecond(-time.Minute), want: "pods shop/web-1: 59 writes"},
		"a manager that starts again and again": {log: inTurns(times(10, 4, func(r *cluster.Request) {
			r.Group, r.Resource, r.Verb = "authentication.k8s.io", "selfsubjectreviews", "create"
		}), times(20, 2))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			loops := Loops(tc.log, options(tc.advances...))
			switch {
			case tc.want == "" && len(loops) > 0:
				t.Errorf("want none, got %v", loops)
			case tc.want != "" && (len(loops) == 0 || !strings.HasPrefix(loops[0].String(), tc.want)):
				t.Errorf("want first %q, got %v", tc.want, loops)
			}
		})
	}
}

func each(log cluster.Requests, change func(int, *cluster.Request)) cluster.Requests {
	for i := range log {
		change(i, &log[i])
	}
	return log
}

// everySecond moves the clock before each second.
func everySecond(by time.Duration) []clock.Advance {
	var advances []clock.Advance
	for i := range 60 {
		advances = append(advances, clock.Advance{At: t0.Add(time.Duration(i)*time.Second - time.Millisecond), By: by})
	}
	return advances
}

func TestMinutes(t *testing.T) {
	log := inTurns(times(70, 1), times(1, 1, answered(409)), times(5, 1, by(them)), times(30, 2, func(r *cluster.Request) { r.Name = "drawbridge-leader" }))
	var printed strings.Builder
	if err := Print(&printed, Minutes(log, options())); err != nil {
		t.Fatal(err)
	}
	want := `MINUTE  WRITES  REFUSED  OBJECT                       WRITER
12:00   30      0        pods shop/drawbridge-leader  system:serviceaccount:ours:drawbridge as guard.drawbridge.dev, patch
12:00   61      1        pods shop/web-1              system:serviceaccount:ours:drawbridge as guard.drawbridge.dev, patch
12:01   10      0        pods shop/web-1              system:serviceaccount:ours:drawbridge as guard.drawbridge.dev, patch
`
	if diff := cmp.Diff(want, printed.String()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}
