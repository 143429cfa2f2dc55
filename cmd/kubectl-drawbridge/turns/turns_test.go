package turns_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	a, b    = "a.example.com/a", "b.example.com/b"
	ours    = "c.example.com"
	native  = v1alpha1.NativeInterceptor
	nested  = v1alpha1.NativeResponder
	last    = v1alpha1.ImperativeEvictionInterceptor
	evictor = lifecyclev1alpha1.EvictionResponderImperativeEviction
	active  = lifecyclev1alpha1.ResponderStateActive
	done    = lifecyclev1alpha1.ResponderStateCompleted
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func request(names ...string) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web", "uid").Requesters("kubectl-drain.drawbridge.dev").Interceptors(names...)
}

func eviction(names ...string) *builder.NativeEvictionWrapper {
	return builder.NativeEviction("shop", "web", "uid").Requesters("acme.example.com/scale").Responders(names...)
}

func states(all []turns.Turn) (lines []string) {
	for _, t := range all {
		kind := ""
		if t.Native {
			kind = "native "
		}
		lines = append(lines, fmt.Sprintf("%s%s: %s", kind, t.Name, t.State))
	}
	return lines
}

func TestTheTurnsOfAPodAreOneList(t *testing.T) {
	pod := builder.Pod("shop", "web").UID("uid").Responders(b, a).Obj()
	for name, tc := range map[string]struct {
		er   *builder.EvictionRequestWrapper
		e    *builder.NativeEvictionWrapper
		pod  *corev1.Pod
		want []string
	}{
		"nobody asked": {want: nil},
		"a pod that has no native responders": {
			er:   request(ours).Active(ours, now),
			want: []string{"c.example.com: has its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"only a native wish": {
			e:    eviction(a, b).State(a, done, now).State(b, active, now),
			want: []string{"native a.example.com/a: done", "native b.example.com/b: has its turn", "native imperative-eviction.k8s.io/evictor: waits for its turn"},
		},
		"a native wish of which our part has not begun": {
			e:    eviction(a, nested).State(a, active, now),
			want: []string{"native a.example.com/a: has its turn", "native drawbridge.dev/interceptors: waits for its turn", "native imperative-eviction.k8s.io/evictor: waits for its turn"},
		},
		"a wish of ours for a pod with responders": {
			er:   request(native, ours).Active(native, now),
			e:    eviction(b, a, nested).State(a, active, now),
			want: []string{"native a.example.com/a: has its turn", "native b.example.com/b: waits for its turn", "c.example.com: waits for its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"the turn of ours within the native one": {
			er:   request(native, ours).Processed(native).Completed(native, now).Active(ours, now),
			e:    eviction(a, nested).State(a, lifecyclev1alpha1.ResponderStateInterrupted, now).State(nested, active, now),
			want: []string{"native a.example.com/a: passed over", "c.example.com: has its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"the eviction of both": {
			er:   request(native, ours).Processed(native, ours).Completed(ours, now).Active(last, now),
			e:    eviction(a, nested).State(a, done, now).State(nested, done, now).State(evictor, active, now),
			want: []string{"native a.example.com/a: done", "c.example.com: done", "imperative-eviction.k8s.io: has its turn"},
		},
		"a native wish for a pod with interceptors only": {
			er:   request(ours).Active(ours, now),
			e:    eviction(nested).State(nested, active, now),
			want: []string{"c.example.com: has its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"a request that was planned before the native API was there": {
			er:   request(ours).Active(ours, now),
			e:    eviction(a, nested).State(a, done, now).State(nested, active, now),
			want: []string{"native a.example.com/a: done", "c.example.com: has its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"ours run first where there is no place among the responders": {
			er:   request(ours, native).Processed(ours).Completed(ours, now).Active(native, now),
			e:    eviction(a, b).State(a, active, now),
			want: []string{"c.example.com: done", "native a.example.com/a: has its turn", "native b.example.com/b: waits for its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"a responder that comes after ours": {
			er:   request(native, ours).Processed(native).Active(ours, now),
			e:    builder.NativeEviction("shop", "web", "uid").Responders(nested).State(nested, active, now).Also("z.org/z", 1000),
			want: []string{"c.example.com: has its turn", "native z.org/z: waits for its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"an Eviction that has not begun": {
			er: request(native, ours).Active(native, now), e: builder.NativeEviction("shop", "web", "uid"), pod: pod,
			want: []string{"native.drawbridge.dev: has its turn", "native a.example.com/a: waits for its turn", "native b.example.com/b: waits for its turn", "c.example.com: waits for its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"a pod whose native responders come later": {
			er: request(ours, native).Active(ours, now), pod: pod,
			want: []string{"c.example.com: has its turn", "native a.example.com/a: waits for its turn", "native b.example.com/b: waits for its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"one that was not read, without an Eviction": {
			er:   request(native).Active(native, now),
			want: []string{"native.drawbridge.dev: has its turn", "imperative-eviction.k8s.io: waits for its turn"},
		},
		"a native wish after a request that was canceled": {
			er:   request(native, ours).Canceled(v1alpha1.ReasonNoRequesters, now),
			e:    eviction(a).State(a, active, now),
			want: []string{"native a.example.com/a: has its turn", "native imperative-eviction.k8s.io/evictor: waits for its turn"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, states(turns.Of(objects(tc.er, tc.e, tc.pod)))); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// objects are nil where there is no wrapper.
func objects(er *builder.EvictionRequestWrapper, e *builder.NativeEvictionWrapper, pod *corev1.Pod) (*v1alpha1.EvictionRequest, *lifecyclev1alpha1.Eviction, *corev1.Pod) {
	var request *v1alpha1.EvictionRequest
	var eviction *lifecyclev1alpha1.Eviction
	if er != nil {
		request = er.Obj()
	}
	if e != nil {
		eviction = e.Obj()
	}
	return request, eviction, pod
}

func TestWhatAResponderReportsIsTold(t *testing.T) {
	e := eviction(a).State(a, active, now).Report(a, func(s *lifecyclev1alpha1.ResponderStatus) {
		s.Message, s.HeartbeatTime, s.ExpectedCompletionTime = new("copying\x1b[2J 42 %"), new(metav1.NewTime(now.Add(time.Minute))), new(metav1.NewTime(now.Add(time.Hour)))
	})
	want := turns.Turn{
		Name: a, Native: true, State: turns.Active, Since: new(now), Heard: new(now.Add(time.Minute)), Expected: new(now.Add(time.Hour)), Message: "copying[2J 42 %",
	}
	if diff := cmp.Diff(want, turns.Of(nil, e.Obj(), nil)[0]); diff != "" {
		t.Errorf("turn (-want +got):\n%s", diff)
	}
}

func TestWhatAPodWaitsFor(t *testing.T) {
	working := func(e *builder.NativeEvictionWrapper) *builder.NativeEvictionWrapper {
		return e.State(a, active, now).Report(a, func(s *lifecyclev1alpha1.ResponderStatus) {
			s.Message, s.ExpectedCompletionTime = new("42 %"), new(metav1.NewTime(now.Add(time.Hour)))
		})
	}
	for name, tc := range map[string]struct {
		er   *builder.EvictionRequestWrapper
		e    *builder.NativeEvictionWrapper
		want requester.Update
	}{
		"an interceptor, where nothing is native": {
			er:   request(ours).Active(ours, now).Deadline("x", now),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: ours, Position: 1, Total: 2, Deadline: now},
		},
		"a native responder, which no deadline hurries": {
			er: request(native, ours).Active(native, now).Deadline("x", now), e: working(eviction(a, b, nested)),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: a, Position: 1, Total: 4, Message: "42 %", ExpectedFinishTime: now.Add(time.Hour)},
		},
		"a native responder that nobody asked for by our API": {
			e:    working(eviction(a)),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: a, Position: 1, Total: 2, Message: "42 %", ExpectedFinishTime: now.Add(time.Hour)},
		},
		"an interceptor after native responders": {
			er: request(native, ours).Processed(native).Active(ours, now), e: eviction(a, nested).State(a, done, now).State(nested, active, now),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: ours, Position: 2, Total: 3},
		},
		"a native responder although ours were cut off": {
			er: request(native, ours).Processed(native, ours).Active(last, now), e: working(eviction(a, nested)),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: a, Position: 1, Total: 3, Message: "42 %", ExpectedFinishTime: now.Add(time.Hour)},
		},
		"a budget, in the eviction of both": {
			er: request(native).Processed(native).Active(last, now).Refused(2, "db"), e: eviction(a).State(a, done, now).State(evictor, active, now),
			want: requester.Update{State: v1alpha1.StateBlocked, Interceptor: last, Position: 2, Total: 2, Message: "waiting for budget db: The disruption budget db needs 3 healthy pods and has 3 currently."},
		},
		"the eviction of a pod that only a native wish is about": {
			e:    eviction(a).State(a, done, now).State(evictor, active, now),
			want: requester.Update{State: v1alpha1.StateEvicting, Interceptor: last, Position: 2, Total: 2},
		},
		"an Eviction that has not begun": {
			er: request(native).Active(native, now), e: builder.NativeEviction("shop", "web", "uid"),
			want: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: native, Position: 1, Total: 2},
		},
		"nobody, if there is only such an Eviction": {
			e:    builder.NativeEviction("shop", "web", "uid"),
			want: requester.Update{State: v1alpha1.StatePending},
		},
		"nobody, after the end": {
			er: request(native).Processed(native, last).Evicted(v1alpha1.ReasonPodDeleted, now), e: eviction(a).State(a, done, now).Ended(lifecyclev1alpha1.EvictionConditionTargetEvicted, now),
			want: requester.Update{State: v1alpha1.StateEvicted, Total: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			er, e, _ := objects(tc.er, tc.e, nil)
			if diff := cmp.Diff(tc.want, turns.Observe(er, e)); diff != "" {
				t.Errorf("update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichEvictionCounts(t *testing.T) {
	failed, gone := lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionTargetEvicted
	named := func(name string, age time.Duration) *builder.NativeEvictionWrapper {
		return builder.NativeEviction("shop", "web", "uid").Name(name).Created(now.Add(-age))
	}
	for name, tc := range map[string]struct {
		all  []*lifecyclev1alpha1.Eviction
		want string
	}{
		"the one that runs":                 {[]*lifecyclev1alpha1.Eviction{named("1", time.Hour).Ended(failed, now).Obj(), named("2", 0).Obj()}, "2"},
		"the older one of two":              {[]*lifecyclev1alpha1.Eviction{named("1", 0).Obj(), named("2", time.Hour).Obj()}, "2"},
		"of the same age by name":           {[]*lifecyclev1alpha1.Eviction{named("2", 0).Obj(), named("1", 0).Obj()}, "1"},
		"the one that has evicted it":       {[]*lifecyclev1alpha1.Eviction{named("1", 0).Ended(gone, now).Obj(), named("2", 0).Ended(failed, now).Obj()}, "1"},
		"the later one of two of these":     {[]*lifecyclev1alpha1.Eviction{named("2", time.Hour).Ended(gone, now).Obj(), named("1", 0).Ended(gone, now).Obj()}, "1"},
		"one that runs before that":         {[]*lifecyclev1alpha1.Eviction{named("1", 0).Ended(gone, now).Obj(), named("2", time.Hour).Obj()}, "2"},
		"none, if all have failed":          {[]*lifecyclev1alpha1.Eviction{named("1", 0).Ended(failed, now).Obj()}, ""},
		"none, if it does not say whom for": {[]*lifecyclev1alpha1.Eviction{{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if e := turns.ByPod(tc.all)["uid"]; e != nil {
				got = e.Name
			}
			if got != tc.want {
				t.Errorf("want %q, have %q", tc.want, got)
			}
		})
	}
}

func TestWhoWantsTheEviction(t *testing.T) {
	for name, tc := range map[string]struct {
		er   *builder.EvictionRequestWrapper
		e    *builder.NativeEvictionWrapper
		want []string
	}{
		"by our API":                      {request(), nil, []string{"kubectl-drain.drawbridge.dev"}},
		"natively":                        {nil, eviction(), []string{"acme.example.com/scale"}},
		"by both, each once":              {request(), eviction().Requesters("drawbridge.dev/kubectl-drain"), []string{"kubectl-drain.drawbridge.dev", "acme.example.com/scale"}},
		"natively, for which ours stands": {builder.EvictionRequest("shop", "web", "uid").Requesters(native), eviction(), []string{"acme.example.com/scale"}},
		"natively, which cannot be read":  {builder.EvictionRequest("shop", "web", "uid").Requesters(native), nil, []string{native}},
	} {
		t.Run(name, func(t *testing.T) {
			er, e, _ := objects(tc.er, tc.e, nil)
			if diff := cmp.Diff(tc.want, turns.Requesters(er, e)); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		})
	}
}
