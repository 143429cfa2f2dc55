package v1alpha1_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestHookJobName(t *testing.T) {
	const request = types.UID("5e9a3a0c-6f0e-4c2b-9a51-1f4f3c1b2d3e")
	cases := map[string]struct {
		hook    string
		request types.UID
		attempt int32
		want    string
	}{
		"a short name":                   {"dump", request, 1, "dump-b41e2f0c68-1"},
		"another attempt":                {"dump", request, 2, "dump-b41e2f0c68-2"},
		"another request":                {"dump", "another", 1, "dump-ae448ac86c-1"},
		"a name with dots":               {"dump.v2.db", request, 1, "dump-v2-db-b41e2f0c68-1"},
		"a long name":                    {strings.Repeat("a", 63), request, 1, strings.Repeat("a", 40) + "-b41e2f0c68-1"},
		"a long name that is cut at -":   {strings.Repeat("a", 38) + "--b", request, 1, strings.Repeat("a", 38) + "-b41e2f0c68-1"},
		"a long name that is cut at -.":  {strings.Repeat("a", 37) + "-.-b", request, 1, strings.Repeat("a", 37) + "-b41e2f0c68-1"},
		"the longest that there can be":  {strings.Repeat("a", 63), request, math.MaxInt32, strings.Repeat("a", 40) + "-b41e2f0c68-2147483647"},
		"a name that begins with digits": {"0.1", request, 3, "0-1-b41e2f0c68-3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := v1alpha1.HookJobName(tc.hook, tc.request, tc.attempt)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("name (-want +got):\n%s", diff)
			}
			if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
				t.Errorf("%s is no DNS label: %q", got, problems)
			}
		})
	}
}

func TestHookOfANameIsTheOneThatHasIt(t *testing.T) {
	cases := map[string]struct {
		interceptor string
		want        types.NamespacedName
		ok          bool
	}{
		"a hook":                   {"dump.shop.hooks.drawbridge.dev", types.NamespacedName{Namespace: "shop", Name: "dump"}, true},
		"a hook with dots":         {"a.b.shop.hooks.drawbridge.dev", types.NamespacedName{Namespace: "shop", Name: "a.b"}, true},
		"another interceptor":      {"dump.shop.example.com", types.NamespacedName{}, false},
		"no name":                  {"shop.hooks.drawbridge.dev", types.NamespacedName{}, false},
		"an empty name":            {".shop.hooks.drawbridge.dev", types.NamespacedName{}, false},
		"an empty namespace":       {"dump..hooks.drawbridge.dev", types.NamespacedName{}, false},
		"the suffix alone":         {"hooks.drawbridge.dev", types.NamespacedName{}, false},
		"the suffix and something": {"a.shop.hooks.drawbridge.dev.x", types.NamespacedName{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := v1alpha1.HookOf(tc.interceptor)
			if ok != tc.ok {
				t.Errorf("it is a hook: %t, want %t", ok, tc.ok)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hook (-want +got):\n%s", diff)
			}
			if ok && v1alpha1.HookInterceptor(got) != tc.interceptor {
				t.Errorf("the interceptor of %s is %s, want %s", got, v1alpha1.HookInterceptor(got), tc.interceptor)
			}
		})
	}
}

func TestWhatAHookDoesOnALostNode(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.EvacuationHookSpec
		want v1alpha1.NodeLostPolicy
	}{
		"a Job runs elsewhere":             {v1alpha1.EvacuationHookSpec{Job: &v1alpha1.HookJob{}}, v1alpha1.NodeLostWait},
		"a condition may come true":        {v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{}}, v1alpha1.NodeLostWait},
		"a command cannot reach the pod":   {v1alpha1.EvacuationHookSpec{Exec: &v1alpha1.HookExec{}}, v1alpha1.NodeLostSkip},
		"nor can a request":                {v1alpha1.EvacuationHookSpec{HTTP: &v1alpha1.HookHTTP{}}, v1alpha1.NodeLostSkip},
		"unless it says that it can":       {v1alpha1.EvacuationHookSpec{HTTP: &v1alpha1.HookHTTP{}, OnNodeLost: v1alpha1.NodeLostWait}, v1alpha1.NodeLostWait},
		"a command that must not go on":    {v1alpha1.EvacuationHookSpec{Exec: &v1alpha1.HookExec{}, OnNodeLost: v1alpha1.NodeLostInterrupt}, v1alpha1.NodeLostInterrupt},
		"a Job that needs the node's disk": {v1alpha1.EvacuationHookSpec{Job: &v1alpha1.HookJob{}, OnNodeLost: v1alpha1.NodeLostSkip}, v1alpha1.NodeLostSkip},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.spec.NodeLostPolicy(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
