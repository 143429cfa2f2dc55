package maintenance_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

var podPolicy = maintenance.PodPolicy{Wait: 3 * time.Minute, SilentAfter: 10 * time.Minute, OwnerDeadline: 20 * time.Minute, TerminatingAfter: time.Minute}

func TestPodStep(t *testing.T) {
	type (
		condition = maintenance.Condition
		decision  = maintenance.PodDecision
		input     = maintenance.PodInput
	)
	const pending, evacuating = maintenance.ClassPending, maintenance.ClassEvacuating
	a, b := maintenance.Want{Requester: "a", Message: "kernel"}, maintenance.Want{Requester: "b", Message: "disks"}
	want, later := []maintenance.Want{a}, maintenance.Want{Requester: "a", Message: "kernel", Later: true}
	asked := &condition{True: true, Ours: true, Message: "kernel", Since: noon.Add(-time.Minute)}
	askedLongAgo := &condition{True: true, Ours: true, Message: "kernel", Since: noon.Add(-3 * time.Minute)}
	foreign := &condition{True: true, Message: "descheduled", Since: noon.Add(-time.Minute)}
	initiated := &condition{True: true, Ours: true}
	working := &maintenance.Eviction{State: v1alpha1.StateIntercepting, Interceptor: "i", Started: true, LastHeard: noon}
	keeps := &maintenance.Block{Reason: v1alpha1.BlockUnmanagedPod, Message: "m keeps it"}
	cases := map[string]struct {
		in   input
		want decision
	}{
		"nobody wants it": {},
		"nobody wants it any more": {
			in:   input{Request: asked, Initiated: initiated, Joined: []string{"a"}, Eviction: working},
			want: decision{Request: maintenance.ChangeRemove, Initiated: maintenance.ChangeRemove, Leave: []string{"a"}},
		},
		"the conditions of others stay": {
			in: input{Request: foreign, Initiated: &condition{True: true}},
		},
		"a pod of a DaemonSet stays": {in: input{Skipped: true, Wants: want}},
		"a pod that has ended stays": {in: input{Terminal: true, Wants: want, Request: asked}},
		"one of two does not want it any more": {
			in:   input{Wants: want, Request: asked, Joined: []string{"a", "b"}, Eviction: working, Initiated: initiated},
			want: decision{Leave: []string{"b"}, Class: evacuating, WakeAt: noon.Add(10 * time.Minute)},
		},
		"an intercepted pod is asked at once": {
			in:   input{Wants: want, Intercepted: true},
			want: decision{Request: maintenance.ChangeTrue, Message: "kernel", Join: []string{"a"}, Class: pending},
		},
		"each maintenance asks for itself": {
			in:   input{Wants: []maintenance.Want{a, b}, Intercepted: true, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StatePending}},
			want: decision{Join: []string{"b"}, Class: pending},
		},
		"a pod without interceptors is left to its owner": {
			in:   input{Wants: want},
			want: decision{Request: maintenance.ChangeTrue, Message: "kernel", Class: pending, OwnerUntil: noon.Add(3 * time.Minute), WakeAt: noon.Add(3 * time.Minute)},
		},
		"for the wait, counted from the condition": {
			in:   input{Wants: want, Request: asked},
			want: decision{Class: pending, OwnerUntil: noon.Add(2 * time.Minute), WakeAt: noon.Add(2 * time.Minute)},
		},
		"and then it is asked": {
			in:   input{Wants: want, Request: askedLongAgo},
			want: decision{Join: []string{"a"}, Class: pending},
		},
		"its owner moves it": {
			in:   input{Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-time.Minute)}},
			want: decision{Class: evacuating, WakeAt: noon.Add(9 * time.Minute)},
		},
		"its owner has said so a long time ago, and that again just now": {
			in:   input{Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-time.Hour), Probed: noon}},
			want: decision{Class: evacuating, WakeAt: noon.Add(10 * time.Minute)},
		},
		"its owner has said so before it was asked": {
			in:   input{Wants: want, Request: asked, Initiated: &condition{True: true, Since: noon.Add(-time.Hour)}},
			want: decision{Class: evacuating, WakeAt: noon.Add(9 * time.Minute)},
		},
		"its owner has said so at a time to come": {
			in:   input{Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-time.Minute), Probed: noon.Add(time.Hour)}},
			want: decision{Class: evacuating, WakeAt: noon.Add(9 * time.Minute)},
		},
		"its owner said that it would, and does nothing": {
			in: input{Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-10 * time.Minute)}, Now: noon.Add(8 * time.Minute)},
			want: decision{Class: evacuating, WakeAt: noon.Add(17 * time.Minute), Block: &maintenance.Block{
				Reason: v1alpha1.BlockOwnerSilent, Message: "its owner has set EvacuationInitiated, and is not heard of since 2026-06-01T11:57:00Z",
			}},
		},
		"its owner does nothing for too long": {
			in: input{Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-20 * time.Minute)}, Now: noon.Add(17 * time.Minute)},
			want: decision{Join: []string{"a"}, Class: evacuating, Block: &maintenance.Block{
				Reason: v1alpha1.BlockOwnerSilent, Message: "its owner has set EvacuationInitiated, and is not heard of since 2026-06-01T11:57:00Z",
			}},
		},
		"and is asked to go then": {
			in: input{
				Wants: want, Request: askedLongAgo, Initiated: &condition{True: true, Since: noon.Add(-20 * time.Minute)}, Now: noon.Add(17 * time.Minute),
				Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StateEvicting},
			},
			want: decision{Class: evacuating},
		},
		"its owner cannot": {
			in:   input{Wants: want, Request: asked, Initiated: &condition{}},
			want: decision{Join: []string{"a"}, Class: pending},
		},
		"somebody else asks the same of it": {
			in:   input{Wants: want, Request: foreign},
			want: decision{Class: pending, OwnerUntil: noon.Add(2 * time.Minute), WakeAt: noon.Add(2 * time.Minute)},
		},
		"somebody else does not ask any more": {
			in:   input{Wants: want, Request: &condition{Message: "descheduled"}},
			want: decision{Request: maintenance.ChangeTrue, Message: "kernel", Class: pending, OwnerUntil: noon.Add(3 * time.Minute), WakeAt: noon.Add(3 * time.Minute)},
		},
		"another reason": {
			in:   input{Wants: []maintenance.Want{b}, Request: asked, Intercepted: true, Joined: []string{"b"}, Eviction: working, Initiated: initiated},
			want: decision{Request: maintenance.ChangeTrue, Message: "disks", Class: evacuating, WakeAt: noon.Add(10 * time.Minute)},
		},
		"an eviction of others is joined at once": {
			in:   input{Wants: want, Request: asked, Eviction: &maintenance.Eviction{State: v1alpha1.StateEvicting}},
			want: decision{Join: []string{"a"}, Class: pending},
		},
		"a canceled one is begun anew": {
			in:   input{Wants: want, Request: asked, Intercepted: true, Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StateCanceled}},
			want: decision{Join: []string{"a"}, Class: pending},
		},
		"an interceptor starts": {
			in:   input{Wants: want, Request: asked, Joined: []string{"a"}, Eviction: working},
			want: decision{Initiated: maintenance.ChangeTrue, Class: evacuating, WakeAt: noon.Add(10 * time.Minute)},
		},
		"an interceptor is silent": {
			in: input{Wants: want, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateIntercepting, Interceptor: "i", LastHeard: noon.Add(-10 * time.Minute),
			}},
			want: decision{Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockInterceptorSilent, Message: "interceptor i does not report"}},
		},
		"an interceptor is silent that may be for a day": {
			in: input{Wants: want, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateIntercepting, Interceptor: "i", LastHeard: noon.Add(-10 * time.Minute), SilentAfter: 12 * time.Hour,
			}},
			want: decision{Class: pending, WakeAt: noon.Add(12*time.Hour - 10*time.Minute)},
		},
		"a budget refuses after the interceptors": {
			in: input{Wants: want, Request: asked, Initiated: initiated, Joined: []string{"a"}, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateBlocked, Interceptor: "imperative-eviction.k8s.io", Message: "budget db allows none", LastHeard: noon,
			}},
			want: decision{Initiated: maintenance.ChangeFalse, Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockEvictionRefused, Message: "budget db allows none"}},
		},
		"a budget refuses that can never allow": {
			in: input{Wants: want, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateBlocked, Never: true, Message: "PodDisruptionBudget db can never allow a disruption (maxUnavailable is 0).",
			}},
			want: decision{Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockBudgetNeverAllows, Message: "PodDisruptionBudget db can never allow a disruption (maxUnavailable is 0)."}},
		},
		"the request is refused": {
			in: input{Wants: want, Request: asked, Intercepted: true, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateCanceled, Refused: true, Message: "it is in a group",
			}},
			want: decision{Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockRequestRefused, Message: "it is in a group"}},
		},
		"the request is being deleted, and held": {
			in: input{Wants: want, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{
				State: v1alpha1.StateDeleting, Message: "finalizers hold it: example.com/hold",
			}},
			want: decision{Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockRequestFailed, Message: "finalizers hold it: example.com/hold"}},
		},
		"nobody wants it any more, and the request is held": {
			in:   input{Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StateDeleting}},
			want: decision{Request: maintenance.ChangeRemove},
		},
		"the request cannot be written": {
			in:   input{Wants: want, Request: asked, Intercepted: true, Failure: "forbidden"},
			want: decision{Join: []string{"a"}, Class: pending, Block: &maintenance.Block{Reason: v1alpha1.BlockRequestFailed, Message: "forbidden"}},
		},
		"a terminating pod is told, and waited for": {
			in:   input{Wants: want, Deleting: true, DeletionTime: noon.Add(30 * time.Second)},
			want: decision{Request: maintenance.ChangeTrue, Message: "kernel", Class: pending, WakeAt: noon.Add(90 * time.Second)},
		},
		"one that does not end": {
			in:   input{Wants: want, Request: asked, Initiated: initiated, Deleting: true, DeletionTime: noon.Add(-time.Minute)},
			want: decision{Class: evacuating, Block: &maintenance.Block{Reason: v1alpha1.BlockTerminating, Message: "its grace period is over, and it has not ended"}},
		},
		"a pod that is kept blocks the drain, and nobody is told to move it": {
			in:   input{Kept: keeps, Request: asked, Initiated: initiated, Joined: []string{"a"}, Eviction: working},
			want: decision{Request: maintenance.ChangeRemove, Initiated: maintenance.ChangeRemove, Leave: []string{"a"}, Class: pending, Block: keeps},
		},
		"a pod that one maintenance keeps and another does not goes": {
			in:   input{Kept: keeps, Wants: want, Intercepted: true, Request: asked},
			want: decision{Join: []string{"a"}, Class: pending},
		},
		"a pod that is kept and deleted by somebody else is waited for": {
			in:   input{Kept: keeps, Deleting: true, DeletionTime: noon.Add(30 * time.Second)},
			want: decision{Class: pending, WakeAt: noon.Add(90 * time.Second)},
		},
		"its wave has not begun": {
			in:   input{Wants: []maintenance.Want{later}, Intercepted: true, Request: asked, Initiated: initiated},
			want: decision{Request: maintenance.ChangeRemove, Initiated: maintenance.ChangeRemove, Class: pending},
		},
		"its wave has not begun, and somebody else evicts it": {
			in:   input{Wants: []maintenance.Want{later}, Eviction: working},
			want: decision{Class: pending},
		},
		"its wave has not begun, and it is deleted": {
			in:   input{Wants: []maintenance.Want{later}, Deleting: true, DeletionTime: noon.Add(30 * time.Second)},
			want: decision{Class: pending, WakeAt: noon.Add(90 * time.Second)},
		},
		"its wave has not begun, and it has ended": {in: input{Wants: []maintenance.Want{later}, Terminal: true}},
		"a pod of a DaemonSet has no wave":         {in: input{Wants: []maintenance.Want{later}, Skipped: true}},
		"it has got into a later wave, but its eviction runs": {
			in:   input{Wants: []maintenance.Want{later}, Request: asked, Joined: []string{"a"}, Eviction: working, Initiated: initiated},
			want: decision{Class: evacuating, WakeAt: noon.Add(10 * time.Minute)},
		},
		"it has got into a later wave, and its eviction was canceled": {
			in:   input{Wants: []maintenance.Want{later}, Request: asked, Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StateCanceled}},
			want: decision{Request: maintenance.ChangeRemove, Leave: []string{"a"}, Class: pending},
		},
		"its turn has come in the order of one of two": {
			in:   input{Wants: []maintenance.Want{later, b}, Intercepted: true, Request: &condition{True: true, Ours: true, Message: "disks", Since: noon}},
			want: decision{Join: []string{"b"}, Class: pending},
		},
		"one keeps it, and it waits for the other one": {
			in:   input{Wants: []maintenance.Want{later}, Kept: keeps},
			want: decision{Class: pending, Block: keeps},
		},
		"a pod of a DaemonSet is not kept but skipped": {in: input{Skipped: true, Kept: keeps}},
		"one that was evicted and is going": {
			in:   input{Joined: []string{"a"}, Eviction: &maintenance.Eviction{State: v1alpha1.StateEvicted}, Deleting: true, Request: asked},
			want: decision{Request: maintenance.ChangeRemove},
		},
		"one that has ended, and whose node nobody drains any more": {
			in:   input{Terminal: true, Request: asked, Initiated: initiated},
			want: decision{Request: maintenance.ChangeRemove, Initiated: maintenance.ChangeRemove},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Policy = podPolicy
			if tc.in.Now.IsZero() {
				tc.in.Now = noon
			}
			if diff := cmp.Diff(tc.want, maintenance.PodStep(tc.in), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
