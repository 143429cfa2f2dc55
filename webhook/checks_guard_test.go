package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestDecideBehindAGuard(t *testing.T) {
	imperative := er().Interceptors(interA).Processed(interA).Active(evictor, t0)
	plain := er().Interceptors().Active(evictor, t0)
	type result struct {
		need    Need
		outcome translate.Outcome
		reason  translate.Reason
	}
	closed := result{outcome: translate.Deny, reason: translate.ReasonGuardClosed}
	tests := map[string]struct {
		request *builder.EvictionRequestWrapper
		change  func(*Input)
		want    result
	}{
		"it opened, as a live look shows": {imperative, func(in *Input) { in.PodSource = Live },
			result{outcome: translate.Allow, reason: translate.ReasonImperativeStage}},
		"it opened, as the cache shows": {imperative, func(in *Input) { in.Call.UID = "uid-1" }, result{need: NeedLivePod}},
		"nobody ever closed it": {plain, func(in *Input) { in.Call.UID = "uid-1" },
			result{outcome: translate.Allow, reason: translate.ReasonImperativeStage}},
		"it is closed, as the cache shows": {imperative, func(in *Input) { in.Call.UID, in.GuardView.Closed = "uid-1", true }, closed},
		"a call of our own wants to know": {imperative, func(in *Input) { in.Own, in.Call.UID, in.GuardView.Closed = true, "uid-1", true },
			result{need: NeedLivePod}},
		"a call of our own knows":                               {imperative, func(in *Input) { in.Own, in.PodSource, in.Call.UID, in.GuardView.Closed = true, Live, "uid-1", true }, closed},
		"it is held without a budget of ours":                   {imperative, func(in *Input) { in.PodSource, in.GuardView.Held = Live, true }, closed},
		"nobody intercepts it any more, but it is closed still": {nil, func(in *Input) { in.GuardView.Closed = true }, closed},
		"nobody intercepts it, held by mistake": {nil, func(in *Input) { in.GuardView.Held = true },
			result{outcome: translate.Allow, reason: translate.ReasonNoInterceptors}},
		"there are no guards": {imperative, func(in *Input) { in.Call.UID, in.GuardView = "uid-1", GuardView{} },
			result{outcome: translate.Allow, reason: translate.ReasonImperativeStage}},
		"there are no guards, but it is held": {imperative, func(in *Input) { in.Call.UID, in.GuardView = "uid-1", GuardView{Held: true} }, closed},
		"an interceptor works": {er().Interceptors(interA).Active(interA, t0), func(in *Input) { in.GuardView.Closed = true },
			result{outcome: translate.Deny, reason: translate.ReasonWaiting}},
		"a dry run": {imperative, func(in *Input) { in.PodSource, in.Call.DryRun, in.GuardView.Closed = Live, true, true },
			result{outcome: translate.Allow, reason: translate.ReasonDryRun}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := Input{Call: call(), Now: t0, Pod: db0().Obj(), LeaseName: leaseN1, GuardView: GuardView{On: true}}
			if tc.request != nil {
				in.Request = tc.request.Obj()
			}
			tc.change(&in)
			d := Decide(in)
			if diff := cmp.Diff(tc.want, result{d.Need, d.Verdict.Outcome, d.Verdict.Reason}, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("whoever asks becomes a requester all the same", func(t *testing.T) {
		in := Input{Call: call(), Now: t0, Pod: db0().Obj(), PodSource: Live, Request: imperative.Obj(), LeaseName: leaseN1, GuardView: GuardView{On: true, Closed: true}}
		if d := Decide(in); d.Action != ActApply || d.Verdict.Outcome != translate.Deny {
			t.Errorf("decision %+v, want it to apply and to deny", d)
		}
	})
}

// Whatever an input is, a call is let through to two budgets only if the guard is
// open, and a guard that is open or does not exist changes no verdict.
func TestNoCallPassesAClosedGuard(t *testing.T) {
	pods := []*builder.PodWrapper{nil, db0(), db0().Deleting(t0), db0().Phase(corev1.PodPending), db0().DaemonSet("d")}
	requests := []*builder.EvictionRequestWrapper{
		nil, er().Interceptors(interA).Active(interA, t0), er().Interceptors(interA).Processed(interA).Active(evictor, t0), er().Interceptors().Active(evictor, t0),
		er().Evicted(v1alpha1.ReasonPodDeleted, t0), er().Canceled(v1alpha1.ReasonNoRequesters, t0), er().Canceled(v1alpha1.ReasonValidationFailed, t0),
	}
	for _, pod := range pods {
		for _, request := range requests {
			for bits := range 1 << 8 {
				bit := func(i int) bool { return bits&(1<<i) != 0 }
				in := Input{Call: call(), Now: t0, LeaseName: leaseN1, Replacement: ReplacementNotFound, ReplacementWindow: DefaultReplacementWindow}
				if pod != nil {
					in.Pod = pod.Obj()
				}
				if request != nil && pod != nil {
					in.Request = request.Obj()
				}
				in.Own, in.Call.DryRun = bit(0), bit(1)
				if bit(2) {
					in.PodSource = Live
				}
				if bit(3) {
					in.Call.UID = "uid-1"
				}
				if bit(4) {
					in.Interceptors = []string{interA}
				}
				if bit(5) {
					in.RequestSource = Live
				}
				without := Decide(in)
				in.GuardView = GuardView{On: true, Closed: bit(6), Held: bit(7)}
				with := Decide(in)
				if with.Need == NeedLivePod && in.PodSource == Live {
					t.Fatalf("the pod is looked at twice: %+v", in)
				}
				if with.Need != NeedNothing {
					continue
				}
				if bit(6) && !in.Call.DryRun && with.Verdict.Outcome == translate.Allow && meetsBudgets(with.Verdict.Reason) {
					t.Fatalf("let through to the budgets with a closed guard: input %+v, decision %+v", in, with)
				}
				if !bit(6) && !bit(7) {
					if diff := cmp.Diff(without, with); diff != "" {
						t.Fatalf("an open guard changes the decision about %+v (-without +with):\n%s", in, diff)
					}
				}
			}
		}
	}
}

// labels is a gate over the label alone.
type labels struct{}

func (labels) Labels() bool { return true }

func (labels) Closed(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed
}

func (labels) Held(*corev1.Pod) bool { return false }

// Between the guard's opening and our cache's knowing, we answer ourselves.
func TestTheGuardIsLookedAtLiveForOurOwnCalls(t *testing.T) {
	guarded := db0().Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
	request := er().Interceptors(interA).Processed(interA).Active(evictor, t0)
	w := newWorld(t, guarded.Obj(), request.Obj())
	w.handler.Gate = labels{}

	callOfOurs := func(r *admissionv1.AdmissionRequest) {
		r.UserInfo.Username = ownAdmin
		r.Object.Raw = []byte(`{"metadata":{"name":"db-0","namespace":"shop"},"deleteOptions":{"preconditions":{"uid":"uid-1"}}}`)
	}
	w.wantAnswer("Eviction triggered evacuation: the guard of the pod is closed", callOfOurs)
	w.wantCalls("get Pod db-0")

	opened := &corev1.Pod{}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(guarded.Obj()), opened); err != nil {
		t.Fatal(err)
	}
	delete(opened.Labels, v1alpha1.GuardLabel)
	if err := w.api.Update(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	w.wantAnswer("allowed", callOfOurs)
}
