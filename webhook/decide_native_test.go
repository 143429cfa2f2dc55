package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// What a native Eviction of the pod has to say, moved by Drawbridge or by controllers of the
// cluster's own, whose evictor calls like anybody else.
func TestDecideOnPodsWithANativeEviction(t *testing.T) {
	turn := func(n NativeTurn) func(*Input) { return func(in *Input) { in.Native = n } }
	last := turn(NativeTurn{Last: true, Planned: true})
	theirs := turn(NativeTurn{Last: true, Planned: true, Theirs: true})
	unplanned := turn(NativeTurn{Last: true, Theirs: true})
	responders := turn(NativeTurn{Responder: "acme.example.com/migrate", Position: 1, Total: 3, Theirs: true, Planned: true})
	onlyNative := func(in *Input) { in.Interceptors = []string{v1alpha1.NativeInterceptor} }
	stranger := func(in *Input) {
		in.Call.Username = "evictor"
		in.Call.Caller = translate.Recognize(translate.CallerInput{Username: "evictor"})
		in.LeaseName, in.LeaseAlive = translate.LeaseName(in.Call.Caller.Requester, "n1"), false
	}
	working, evicting := er().Active(interA, t0), er().Processed(interA, interB).Active(evictor, t0)
	imperative := allowed("imperative-stage")
	cases := map[string]struct {
		in   Input
		want got
	}{
		"ours is in charge, all had their turn":                     {input(last, withUID), imperative},
		"theirs is, all had their turn":                             {input(theirs, withUID), imperative},
		"theirs is, and nobody else answers":                        {input(unplanned, onlyNative, withUID), imperative},
		"theirs is, and has passed by interceptors of ours":         {input(unplanned, withUID), deniedAccepted()},
		"ours is, and the interceptors are new":                     {input(turn(NativeTurn{Last: true}), withUID), imperative},
		"their evictor has to wait for them, and does not join":     {during(working, unplanned, stranger, withUID), deniedWaiting()},
		"a requester has to wait, too, and stays one":               {during(working, unplanned), deniedWaiting()},
		"while responders have the turn, a caller joins":            {input(responders, onlyNative, stranger, withUID), deniedAccepted().after(ActApply)},
		"at the last stage their evictor passes, and does not join": {during(evicting, theirs, stranger, withUID), imperative},
		"at the last stage all wait for the next Eviction, the evictor too": {during(evicting, turn(NativeTurn{Responder: v1alpha1.NativeInterceptor}), withUID),
			deniedLast(`waiting for interceptor "native.drawbridge.dev" (1 of 3)`)},
		"at the last stage of ours a caller joins": {during(evicting, last, stranger, withUID), imperative.after(ActApply)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inWords(Decide(tc.in)), cmp.AllowUnexported(got{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
