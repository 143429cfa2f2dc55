package native

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
)

// C.2 The Eviction: how it may be created and changed.
func TestNative_C2_Spec(t *testing.T) {
	client := evictions(kube.Namespace(t))
	for name, tc := range map[string]struct {
		with func(*lifecyclev1alpha1.Eviction)
		want string
	}{
		"N14 a DNS subdomain is accepted":        {with: func(e *lifecyclev1alpha1.Eviction) { e.Name = "pod-1-web.blue" }, want: accepted},
		"N14 other names are refused":            {with: func(e *lifecyclev1alpha1.Eviction) { e.Name = "Pod_1" }, want: "metadata.name"},
		"N15 a target that is no pod is refused": {with: func(e *lifecyclev1alpha1.Eviction) { e.Spec.Target.Pod = nil }, want: "spec.target"},
		"N15 a pod without a name is refused":    {with: func(e *lifecyclev1alpha1.Eviction) { e.Spec.Target.Pod.Name = "" }, want: "spec.target.pod.name: Required value"},
		"N15 a pod without a UID is refused":     {with: func(e *lifecyclev1alpha1.Eviction) { e.Spec.Target.Pod.UID = "" }, want: "spec.target.pod.uid: Required value"},
		"N15 what is no UUID is refused": {
			with: func(e *lifecyclev1alpha1.Eviction) {
				e.Spec.Target.Pod.UID = types.UID(strings.ToUpper(string(e.Spec.Target.Pod.UID)) + "A")
			},
			want: "spec.target.pod.uid",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eviction := newEviction()
			tc.with(eviction)
			_, err := client.Create(t.Context(), eviction, metav1.CreateOptions{})
			judge(t, tc.want, err)
		})
	}

	t.Run("N14 a status is dropped", func(t *testing.T) {
		eviction := newEviction()
		begun(&eviction.Status)
		created := must(client.Create(t.Context(), eviction, metav1.CreateOptions{}))(t)
		if diff := cmp.Diff(lifecyclev1alpha1.EvictionStatus{}, created.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
	t.Run("N14 a label does not move the generation", func(t *testing.T) {
		eviction := must(client.Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
		eviction.Labels = map[string]string{requesterName: "requester"}
		if updated := must(client.Update(t.Context(), eviction, metav1.UpdateOptions{}))(t); updated.Generation != 1 {
			t.Errorf("generation %d", updated.Generation)
		}
	})
	t.Run("N14 an update without a resourceVersion is refused", func(t *testing.T) {
		eviction := must(client.Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
		eviction.ResourceVersion = ""
		_, err := client.Update(t.Context(), eviction, metav1.UpdateOptions{})
		judge(t, "metadata.resourceVersion", err)
	})
	t.Run("N15 another target is refused", func(t *testing.T) {
		eviction := must(client.Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
		eviction.Spec.Target.Pod.UID = uuid.NewUUID()
		_, err := client.Update(t.Context(), eviction, metav1.UpdateOptions{})
		judge(t, "spec.target: Invalid value: null: field is immutable", err)
	})
	t.Run("N16 a second Eviction of a pod is accepted", func(t *testing.T) {
		eviction := newEviction()
		for range 2 {
			must(client.Create(t.Context(), eviction, metav1.CreateOptions{}))(t)
		}
	})
	t.Run("N31 a write of the status changes nothing else", func(t *testing.T) {
		before := must(client.Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
		eviction := before.DeepCopy()
		begun(&eviction.Status)
		eviction.Labels = map[string]string{requesterName: "requester"}
		eviction.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uuid.NewUUID()}}
		eviction.Spec.Target.Pod.Name = "db"
		after := must(client.UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
		if after.Labels != nil || after.OwnerReferences != nil || after.Spec.Target.Pod.Name != "web" || after.Generation != before.Generation {
			t.Errorf("after: %+v %+v", after.ObjectMeta, after.Spec)
		}
	})
}

// requester names somebody who wants it or does not.
func requester(name string, intent lifecyclev1alpha1.RequesterIntent) change {
	return func(s *lifecyclev1alpha1.EvictionStatus) {
		s.Requesters = append(s.Requesters, lifecyclev1alpha1.Requester{Name: name, Intent: intent})
	}
}

// names of n responders or requesters.
func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("n%03d.example.com/x", i))
	}
	return all
}

// C.2 The Eviction: the shape of its status.
func TestNative_C2_Status(t *testing.T) {
	const (
		wants   = lifecyclev1alpha1.RequesterIntentEviction
		final   = "condition status cannot be reverted"
		same    = "must preserve the same"
		tracked = "has to be tracked in status.responders first"
		immut   = "cannot be modified once set"
	)
	other := func(status metav1.ConditionStatus) change { return condition("Other", status, "Test") }
	requesters := func(n int) change {
		var all []change
		for _, name := range names(n) {
			all = append(all, requester(name, wants))
		}
		return together(all...)
	}
	one := func(name string, priority int32) change { return together(plan(priority, name), turn(name)) }
	priority := func(value *int32) change {
		return target(first, func(r *lifecyclev1alpha1.TargetResponder) { r.Priority = value })
	}
	without := func(name string) change {
		return func(s *lifecyclev1alpha1.EvictionStatus) {
			s.TargetResponders = slices.DeleteFunc(s.TargetResponders, func(r lifecyclev1alpha1.TargetResponder) bool { return r.Name == name })
			s.Responders = slices.DeleteFunc(s.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool { return r.Name == name })
		}
	}
	unlisted := func(name string) change {
		return func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Responders = slices.DeleteFunc(s.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool { return r.Name == name })
		}
	}
	backwards := func(s *lifecyclev1alpha1.EvictionStatus) {
		slices.Reverse(s.TargetResponders)
		slices.Reverse(s.Responders)
	}
	runStatusCases(t, map[string]statusCase{
		"N17 TargetEvicted does not become False":   {given: []change{evicted}, write: condition(lifecyclev1alpha1.EvictionConditionTargetEvicted, metav1.ConditionFalse, "PodDeleted"), want: final},
		"N17 TargetEvicted does not vanish":         {given: []change{evicted}, write: condition(lifecyclev1alpha1.EvictionConditionTargetEvicted, "", ""), want: final},
		"N17 TargetEvicted keeps its reason":        {given: []change{evicted}, write: condition(lifecyclev1alpha1.EvictionConditionTargetEvicted, metav1.ConditionTrue, "PodTerminal"), want: final},
		"N17 Failed does not become False":          {given: []change{failed}, write: condition(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionFalse, "NoFurtherResponder"), want: final},
		"N17 Failed does not vanish":                {given: []change{failed}, write: condition(lifecyclev1alpha1.EvictionConditionFailed, "", ""), want: final},
		"N17 Failed keeps its reason":               {given: []change{failed}, write: condition(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionTrue, "EvictionInvalid"), want: final},
		"N18 another condition comes after the end": {given: []change{failed}, write: other(metav1.ConditionTrue)},
		"N18 it changes after the end":              {given: []change{together(failed, other(metav1.ConditionTrue))}, write: other(metav1.ConditionFalse)},
		"N18 it goes":                               {given: []change{other(metav1.ConditionTrue)}, write: other("")},
		"N18 100 conditions are accepted":           {write: func(s *lifecyclev1alpha1.EvictionStatus) { s.Conditions = many(100) }},
		"N18 101 conditions are refused":            {write: func(s *lifecyclev1alpha1.EvictionStatus) { s.Conditions = many(101) }, want: "status.conditions: Too many"},
		"N19 100 requesters are accepted":           {write: requesters(100)},
		"N19 101 requesters are refused":            {write: requesters(101), want: "status.requesters: Too many"},
		"N19 the same requester twice is refused":   {write: together(requester(requesterName, wants), requester(requesterName, wants)), want: "Duplicate value"},
		"N19 a name without a domain is refused":    {write: requester("drain", wants), want: "status.requesters[0].name"},
		"N19 a requester of Kubernetes is accepted": {write: requester("node.k8s.io/drain", wants)},
		"N19 an unknown intent is refused":          {write: requester(requesterName, "Drain"), want: "status.requesters[0].intent: Unsupported value"},
		"N19 an intent may change": {given: []change{requester(requesterName, wants)}, write: func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Requesters[0].Intent = lifecyclev1alpha1.RequesterIntentWithdrawn
		}},
		"N19 a requester may go":                    {given: []change{requester(requesterName, wants)}, write: func(s *lifecyclev1alpha1.EvictionStatus) { s.Requesters = nil }},
		"N20 11 responders are accepted":            {write: together(plan(2000, names(11)...), turn(names(1)[0]))},
		"N20 12 responders are refused":             {write: together(plan(2000, names(12)...), turn(names(1)[0])), want: "status.targetResponders: Too many"},
		"N20 the same responder twice is refused":   {write: together(plan(2000, first, first), turn(first)), want: "Duplicate value"},
		"N20 a name without a domain is refused":    {write: one("migrate", 2000), want: "status.targetResponders[0].name"},
		"N20 an unknown state is refused":           {write: together(three, state(first, "Ready"), started(first, 0)), want: "state"},
		"N21 no responder is added":                 {given: []change{begun}, write: plan(1500, "third.example.com/x"), want: same},
		"N21 no responder is removed":               {given: []change{begun}, write: without(second), want: same},
		"N21 no responder is replaced":              {given: []change{begun}, write: together(without(second), plan(2000, "third.example.com/x")), want: same},
		"N21 the list is not emptied":               {given: []change{begun}, write: func(s *lifecyclev1alpha1.EvictionStatus) { s.TargetResponders, s.Responders = nil, nil }, want: same},
		"N21 the items may change places":           {given: []change{begun}, write: backwards},
		"N22 a priority of 100000 is accepted":      {write: one(first, 100000)},
		"N22 a higher priority is refused":          {write: one(first, 100001), want: "status.targetResponders[0].priority"},
		"N22 a negative priority is refused":        {write: one(first, -1), want: "status.targetResponders[0].priority"},
		"N22 no priority is refused":                {write: together(one(first, 2000), priority(nil)), want: "status.targetResponders[0].priority: Required value"},
		"N22 a priority does not change":            {given: []change{begun}, write: priority(ptr.To[int32](4000)), want: "priority"},
		"N23 a priority of 1000 is accepted":        {write: one(first, 1000)},
		"N23 a priority of 999 is refused":          {write: one(first, 999), want: "priorities 0-999 are reserved"},
		"N23 for an unknown one of Kubernetes, too": {write: one("other-eviction.k8s.io/evictor", 999), want: "priorities 0-999 are reserved"},
		"N23 the evictor has 100":                   {write: one(evictorName, 100)},
		"N23 the evictor has no other":              {write: one(evictorName, 1000), want: "core k8s responder is expected to have priority: 100"},
		"N24 an item for each in the first write":   {write: together(begun, unlisted(second)), want: tracked},
		"N24 and for none that is no responder": {write: together(begun, func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Responders = append(s.Responders, lifecyclev1alpha1.ResponderStatus{Name: "third.example.com/x"})
		}), want: "must be the same length as status.targetResponders"},
		"N24 no item is removed later":                 {given: []change{begun}, write: unlisted(second), want: tracked},
		"N30 a message of 4000 characters is accepted": {given: []change{begun}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.Message = ptr.To(strings.Repeat("é", 4000)) })},
		"N30 a longer message is refused":              {given: []change{begun}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.Message = ptr.To(strings.Repeat("e", 4001)) }), want: "message"},
		"N25 Active needs startTime":                   {write: together(three, state(first, active)), want: "startTime: Required value"},
		"N25 a startTime a little ago is accepted":     {write: together(begun, started(first, -near))},
		"N25 a startTime a little ahead is accepted":   {write: together(begun, started(first, near))},
		"N25 an earlier startTime is refused":          {write: together(begun, started(first, -far)), want: "must be set to the present time"},
		"N25 a later startTime is refused":             {write: together(begun, started(first, far)), want: "must be set to the present time"},
		"N25 startTime does not change":                {given: []change{begun}, write: started(first, near), want: immut},
		"N25 startTime is not unset":                   {given: []change{begun}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.StartTime = nil }), want: "startTime"},
	})
}

// C.2 The Eviction: the times that a responder reports.
func TestNative_C2_Times(t *testing.T) {
	const (
		present = "must be set to the present time"
		after   = "must occur after"
		before  = "cannot be set before"
		decade  = 10 * 365 * 24 * time.Hour
	)
	// ahead begins a little in the future, so that now is before it.
	ahead := together(begun, started(first, near))
	// idle is final without anybody's turn, so nobody has a startTime; the evictor's item is initialised.
	idle := together(three, failed)
	runStatusCases(t, map[string]statusCase{
		"N26 a heartbeat is accepted":                       {given: []change{begun}, write: heartbeat(first, 0)},
		"N26 a little ago":                                  {given: []change{begun}, age: time.Minute, write: heartbeat(first, -near)},
		"N26 a little ahead":                                {given: []change{begun}, write: heartbeat(first, near)},
		"N26 an old heartbeat is refused":                   {given: []change{begun}, age: time.Hour, write: heartbeat(first, -far), want: present},
		"N26 a heartbeat of the future is refused":          {given: []change{begun}, write: heartbeat(first, far), want: present},
		"N26 a heartbeat needs startTime":                   {write: together(idle, heartbeat(second, 0)), want: before},
		"N26 a heartbeat is not before startTime":           {given: []change{ahead}, write: heartbeat(first, -near), want: after},
		"N26 a heartbeat does not decrease":                 {given: []change{begun, heartbeat(first, near)}, write: heartbeat(first, 0), want: "cannot be decreased"},
		"N26 a heartbeat is not unset":                      {given: []change{begun, heartbeat(first, 0)}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.HeartbeatTime = nil }), want: "is required once set"},
		"N27 the next one may follow after ten seconds":     {given: []change{begun, heartbeat(first, 0)}, write: heartbeat(first, near)},
		"N28 an estimate is accepted":                       {given: []change{begun}, write: expected(first, time.Hour)},
		"N28 it may change and go":                          {given: []change{begun, expected(first, time.Hour), expected(first, time.Minute)}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.ExpectedCompletionTime = nil })},
		"N28 an estimate needs startTime":                   {write: together(idle, expected(second, 0)), want: before},
		"N28 an estimate is not before startTime":           {given: []change{ahead}, write: expected(first, -near), want: after},
		"N28 an estimate a little ago is accepted":          {given: []change{begun}, age: time.Hour, write: expected(first, -near)},
		"N28 an estimate in the past is refused":            {given: []change{begun}, age: time.Hour, write: expected(first, -far), want: "cannot be set to the past time"},
		"N28 an estimate that the past has overtaken stays": {given: []change{begun, expected(first, time.Minute)}, age: 10 * time.Minute, write: heartbeat(first, 0)},
		"N28 an estimate of nearly ten years is accepted":   {given: []change{begun}, write: expected(first, decade-time.Hour)},
		"N28 an estimate of more than ten years is refused": {given: []change{begun}, write: expected(first, decade+time.Hour), want: "must complete within 10 years"},
		"N29 completion is accepted":                        {given: []change{begun}, write: completion(first, 0)},
		"N29 completion a little ago is accepted":           {given: []change{begun}, age: time.Minute, write: completion(first, -near)},
		"N29 completion long ago is refused":                {given: []change{begun}, age: time.Hour, write: completion(first, -far), want: present},
		"N29 completion in the future is refused":           {given: []change{begun}, write: completion(first, far), want: present},
		"N29 completion needs startTime":                    {write: together(idle, completion(second, 0)), want: before},
		"N29 completion is not before startTime":            {given: []change{ahead}, write: completion(first, -near), want: after},
		"N29 completion does not change":                    {given: []change{begun, completion(first, 0)}, write: completion(first, near), want: "cannot be modified once set"},
		"N29 completion is not unset":                       {given: []change{begun, completion(first, 0)}, write: said(first, func(r *lifecyclev1alpha1.ResponderStatus) { r.CompletionTime = nil }), want: "completionTime"},
	})
}
