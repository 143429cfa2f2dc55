package forecast

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestNativeRespondersThatAreLeft(t *testing.T) {
	const native, a, b = v1alpha1.NativeInterceptor, "a.example.com/a", "b.example.com/b"
	const active, done = lifecyclev1alpha1.ResponderStateActive, lifecyclev1alpha1.ResponderStateCompleted
	responding := func(p *corev1.Pod) {
		p.Spec.EvictionResponders = builder.Pod("", "").Responders(b, a).Obj().Spec.EvictionResponders
	}
	request := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "x", "uid-x").Created(now.Add(-time.Minute)).Interceptors(native, saver)
	}
	eviction := func() *builder.NativeEvictionWrapper {
		return builder.NativeEviction("shop", "x", "uid-x").Responders(b, a, v1alpha1.NativeResponder)
	}
	const began = 30 * time.Second
	for name, tc := range map[string]struct {
		er      *builder.EvictionRequestWrapper
		e       *builder.NativeEvictionWrapper
		after   string
		elapsed time.Duration
	}{
		"all, before anybody has asked": {after: "native.drawbridge.dev (a.example.com/a, b.example.com/b), saver.example.com"},
		"all, until they begin": {
			er: request().Active(native, now.Add(-began)), elapsed: began,
			after: "native.drawbridge.dev (a.example.com/a, b.example.com/b), saver.example.com",
		},
		"the one that has its turn, and those that follow": {
			er: request().Active(native, now.Add(-began)), elapsed: began,
			e:     eviction().State(a, done, now.Add(-began)).State(b, active, now),
			after: "native.drawbridge.dev (b.example.com/b), saver.example.com",
		},
		"of an Eviction that nobody asked for by our API": {
			e: eviction().State(a, done, now.Add(-began)).State(b, active, now), elapsed: began,
			after: "native.drawbridge.dev (b.example.com/b), saver.example.com",
		},
		"none, when ours have their turn": {
			er:    request().Processed(native).Active(saver, now),
			e:     eviction().State(a, done, now).State(b, done, now).State(v1alpha1.NativeResponder, active, now),
			after: "saver.example.com",
		},
		"none of an Eviction at its end": {
			e:     eviction().State(a, done, now).State(b, done, now).State(v1alpha1.NativeResponder, active, now),
			after: "saver.example.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(pod("x", "a", saved, responding))
			in.Native = true
			if tc.er != nil {
				in.Requests = append(in.Requests, tc.er.Obj())
			}
			if tc.e != nil {
				in.Evictions = append(in.Evictions, tc.e.Obj())
			}
			told := Of(in)
			if diff := cmp.Diff(tc.after, told.Pods[0].After()); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if v := newWorld(&in).pods[0]; v.turns[0].elapsed != tc.elapsed {
				t.Errorf("%s of the first turn have elapsed, want %s", v.turns[0].elapsed, tc.elapsed)
			}
			var out bytes.Buffer
			o := &options{Options: &cli.Options{}}
			o.Out = &out
			if err := o.print(&told); err != nil || !strings.Contains(out.String(), "  "+tc.after+"\n") {
				t.Errorf("error %v, no row ends with %q:\n%s", err, tc.after, &out)
			}
		})
	}
}
