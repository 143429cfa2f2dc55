package descheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestHintStep(t *testing.T) {
	t.Parallel()
	const foreign = "kubevirt"
	marked := func(value string) map[string]string { return map[string]string{evictionInProgress: value} }
	evictOnly := func(value string) map[string]string { return map[string]string{requestEvictOnly: value} }
	cases := map[string]struct {
		in   input
		want []hint
	}{
		"an ordinary pod": {in: input{MarkInProgress: true, MarkEvictOnly: true}},
		"an eviction that goes on": {
			in:   input{MarkInProgress: true, Running: true, Lasting: true},
			want: []hint{{evictionInProgress, true}},
		},
		"it is marked already":             {in: input{MarkInProgress: true, Running: true, Lasting: true, Annotations: marked(ours)}},
		"it is marked by another":          {in: input{MarkInProgress: true, Running: true, Lasting: true, Annotations: marked(foreign)}},
		"somebody has taken our mark away": {in: input{MarkInProgress: true, Running: true, Lasting: true, Marked: true}},
		"another's mark may be empty":      {in: input{MarkInProgress: true, Running: true, Lasting: true, Annotations: marked("")}},
		"an eviction over in a moment":     {in: input{MarkInProgress: true, Running: true}},
		"a mark stays until the end":       {in: input{MarkInProgress: true, Running: true, Annotations: marked(ours)}},
		"the eviction has ended and the pod is there": {
			in:   input{MarkInProgress: true, Annotations: marked(ours)},
			want: []hint{{evictionInProgress, false}},
		},
		"a pod that has ended loses it, too": {
			in:   input{MarkInProgress: true, Terminal: true, Annotations: marked(ours)},
			want: []hint{{evictionInProgress, false}},
		},
		"a pod that has ended gets none":                {in: input{MarkInProgress: true, MarkEvictOnly: true, Running: true, Lasting: true, Intercepted: true, Terminal: true}},
		"another's mark outlives our eviction":          {in: input{MarkInProgress: true, Annotations: marked(foreign)}},
		"a pod that is being deleted is left alone":     {in: input{MarkInProgress: true, Deleting: true, Running: true, Lasting: true}},
		"and keeps what it has, whatever the eviction":  {in: input{MarkInProgress: true, Deleting: true, Annotations: marked(ours)}},
		"marking is switched off":                       {in: input{MarkEvictOnly: true, Running: true, Lasting: true}},
		"marking was switched off in the middle of one": {in: input{MarkEvictOnly: true, Running: true, Lasting: true, Annotations: marked(ours)}, want: []hint{{evictionInProgress, false}}},

		"an intercepted pod":                {in: input{MarkEvictOnly: true, Intercepted: true}, want: []hint{{requestEvictOnly, true}}},
		"it has the annotation":             {in: input{MarkEvictOnly: true, Intercepted: true, Annotations: evictOnly(ours)}},
		"its template has the annotation":   {in: input{MarkEvictOnly: true, Intercepted: true, Annotations: evictOnly("")}},
		"nobody intercepts it any more":     {in: input{MarkEvictOnly: true, Annotations: evictOnly(ours)}, want: []hint{{requestEvictOnly, false}}},
		"unless its eviction runs":          {in: input{MarkEvictOnly: true, Running: true, Annotations: evictOnly(ours)}},
		"the template's annotation stays":   {in: input{MarkEvictOnly: true, Annotations: evictOnly("")}},
		"an intercepted pod, switched off":  {in: input{MarkInProgress: true, Intercepted: true}},
		"what was left after switching off": {in: input{MarkInProgress: true, Annotations: evictOnly(ours)}, want: []hint{{requestEvictOnly, false}}},

		"both at once": {
			in:   input{MarkInProgress: true, MarkEvictOnly: true, Intercepted: true, Running: true, Lasting: true},
			want: []hint{{evictionInProgress, true}, {requestEvictOnly, true}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, step(tc.in)); diff != "" {
				t.Errorf("hints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHintPatch(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pod   *builder.PodWrapper
		hints []hint
		want  string
	}{
		"the first annotation of a pod": {
			builder.Pod("shop", "web-1").UID("uid-1"), []hint{{evictionInProgress, true}},
			`[{"op":"test","path":"/metadata/uid","value":"uid-1"},` +
				`{"op":"test","path":"/metadata/annotations","value":null},` +
				`{"op":"add","path":"/metadata/annotations","value":{}},` +
				`{"op":"test","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1eviction-in-progress","value":null},` +
				`{"op":"add","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1eviction-in-progress","value":"drawbridge.dev"}]`,
		},
		"one goes and one comes": {
			builder.Pod("shop", "web-1").UID("uid-1").Annotation(evictionInProgress, ours),
			[]hint{{evictionInProgress, false}, {requestEvictOnly, true}},
			`[{"op":"test","path":"/metadata/uid","value":"uid-1"},` +
				`{"op":"test","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1eviction-in-progress","value":"drawbridge.dev"},` +
				`{"op":"remove","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1eviction-in-progress"},` +
				`{"op":"test","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1request-evict-only","value":null},` +
				`{"op":"add","path":"/metadata/annotations/descheduler.alpha.kubernetes.io~1request-evict-only","value":"drawbridge.dev"}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := patchOf(tc.pod.Obj(), tc.hints)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
