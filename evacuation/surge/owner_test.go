package surge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// rolloutsTie is the label of Argo Rollouts.
const rolloutsTie = "rollouts-pod-template-hash"

// rolledSet is a ReplicaSet of a Rollout of Argo Rollouts.
func rolledSet(name string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID(name), Generation: 3,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web", UID: "r", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "web", rolloutsTie: hash}},
		},
		Status: appsv1.ReplicaSetStatus{ObservedGeneration: 3},
	}
}

// rolledPod is a pod of such a ReplicaSet.
func rolledPod(name, set string) *corev1.Pod {
	p := pod(name, set)
	delete(p.Labels, hashLabel)
	p.Labels[rolloutsTie] = hash
	return p
}

// freed is a pod as it is when it was set free.
func freed(t *testing.T, p *corev1.Pod, at time.Time) *corev1.Pod {
	t.Helper()
	patch, err := setFreePatch(p, rolloutsTie, at)
	if err != nil {
		t.Fatal(err)
	}
	got, err := apply(t, p.DeepCopy(), patch)
	if err != nil {
		t.Fatal(err)
	}
	got.ResourceVersion = p.ResourceVersion
	return got
}

// beforeFree is the input about the one pod of a Rollout that nothing keeps from being set
// free.
func beforeFree() *input {
	set := rolledSet("web-a", 1)
	return &input{
		now: t0, live: true, request: "er", activatedAt: t0, pod: rolledPod("web-1", "web-a"), set: set, deployment: asDeployment(set),
		replicas: 1, above: "r",
	}
}

// ofSet changes the ReplicaSet, and with it what is treated like a Deployment.
func ofSet(change func(*appsv1.ReplicaSet)) func(*input) {
	return func(in *input) {
		change(in.set)
		in.deployment = asDeployment(in.set)
	}
}

func scaledTo(n int32) func(*input) {
	return func(in *input) {
		ofSet(func(set *appsv1.ReplicaSet) { set.Spec.Replicas = &n })(in)
		in.replicas = int(n)
	}
}

func TestStepBeforeAPodIsSetFree(t *testing.T) {
	waits := func(message string, after time.Duration) decision { return decision{wait, "", message, after} }
	ends := func(reason, message string) decision {
		return decision{done, reason, "Not replaced beforehand: " + message + ".", 0}
	}
	hands := decision{handUp, "", "Waiting for a replacement to become available.", recheck}
	alone := func(in *input) { in.deployment, in.set.OwnerReferences = nil, nil }
	of := func(apiVersion, kind string) func(*input) {
		return func(in *input) {
			in.set, in.deployment = nil, nil
			in.pod.OwnerReferences[1].APIVersion, in.pod.OwnerReferences[1].Kind = apiVersion, kind
		}
	}
	const rollout = "the owner of ReplicaSet web-a (ReplicaSet web-b wants pods, too)"
	cases := map[string]struct {
		change func(*input)
		want   decision
	}{
		"nothing keeps it":                     {func(*input) {}, hands},
		"a look at the API server comes first": {func(in *input) { in.live = false }, decision{verdict: look}},
		"a ReplicaSet of nobody":               {alone, ends(declinedNotOfDeployment, "ReplicaSet web-a has no owner that rolls it out: use a Deployment instead of it, or run more replicas than its budget wants")},
		"a selector without such a label":      {func(in *input) { in.deployment, in.set.Spec.Selector = nil, nil }, ends(declinedNotOfDeployment, "ReplicaSet web-a of Rollout web selects its pods by no label that ends with pod-template-hash, so none can be taken from it")},
		"a Deployment that is gone":            {func(in *input) { in.deployment = nil; in.set.OwnerReferences = replicaSet("x", 1, 1).OwnerReferences }, ends(declinedNotOfDeployment, "the pod belongs to no Deployment")},
		"a CloneSet of OpenKruise":             {of("apps.kruise.io/v1alpha1", "CloneSet"), ends(declinedNotOfDeployment, "CloneSet web-a has a surge of its own: set spec.updateStrategy.maxSurge, and label the pod apps.kruise.io/specified-delete=true before the drain")},
		"a CloneSet of somebody else":          {of("example.com/v1", "CloneSet"), ends(declinedNotOfDeployment, "the pod belongs to no Deployment")},
		"the pod has no such label":            {func(in *input) { delete(in.pod.Labels, rolloutsTie) }, ends(declinedNotOfDeployment, "the pod has no label rollouts-pod-template-hash")},
		"the ReplicaSet is deleted":            {ofSet(func(set *appsv1.ReplicaSet) { set.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }), ends(declinedDeleting, "ReplicaSet web-a is being deleted")},
		"it is scaled to 0":                    {scaledTo(0), ends(declinedScaledToZero, "ReplicaSet web-a is scaled to 0")},
		"not ready for long":                   {func(in *input) { setReady(in.pod, corev1.ConditionFalse, t0.Add(-10*time.Minute), "") }, ends(declinedNotReady, "the pod has not been ready since 2026-05-04T11:50:00Z")},
		"a Service would lose it":              {func(in *input) { in.service = "web-active" }, ends(declinedService, "Service web-active selects its pods by the label rollouts-pod-template-hash, which the pod would lose, and it would stop serving before there is a replacement")},
		"a number that nobody has seen":        {ofSet(func(set *appsv1.ReplicaSet) { set.Generation++ }), waits("Waiting for the controller of ReplicaSet web-a.", recheckSoon)},
		"another ReplicaSet wants pods":        {func(in *input) { in.rival = "web-b" }, waits("Waiting for the rollout of "+rollout+".", recheck)},
		"another one wants them for too long":  {func(in *input) { in.rival, in.now = "web-b", t0.Add(10*time.Minute) }, ends(declinedRolloutStuck, "a rollout of "+rollout+" is paused or makes no progress")},
		"our deadline counts": {func(in *input) {
			in.rival, in.now, in.policy.ProgressDeadline = "web-b", t0.Add(time.Minute), time.Minute
		}, ends(declinedRolloutStuck, "a rollout of "+rollout+" is paused or makes no progress")},
		"no quota":                               {ofSet(cannot), ends(declinedCannotCreate, "ReplicaSet web-a cannot create pods: exceeded quota: small")},
		"another one is free":                    {func(in *input) { in.occupied.deployment = 1 }, waits("Waiting for other pods of ReplicaSet web-a: 1 at a time.", recheck)},
		"one of five is free, and two may be so": {func(in *input) { scaledTo(5)(in); in.occupied.deployment = 1 }, hands},
		"two of five are free":                   {func(in *input) { scaledTo(5)(in); in.occupied.deployment = 2 }, waits("Waiting for other pods of ReplicaSet web-a: 2 at a time.", recheck)},
		"the cluster's limit":                    {func(in *input) { in.policy.ClusterLimit, in.occupied.cluster = 3, 3 }, waits("Waiting for pods of other Deployments: the cluster's limit is 3 at a time.", recheck)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := beforeFree()
			tc.change(in)
			if diff := cmp.Diff(tc.want, step(in), cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// free is the input a minute after the pod was set free: its replacement is not there yet.
func free(t *testing.T) *input {
	t.Helper()
	in := beforeFree()
	in.pod, in.now = freed(t, in.pod, t0), t0.Add(time.Minute)
	return in
}

func TestStepAndReturnOfAPodThatIsFree(t *testing.T) {
	waits := func(message string, after time.Duration) decision { return decision{wait, "", message, after} }
	gives := func(reason, message string) decision { return decision{giveBack, reason, message, 0} }
	ends := func(reason, message string) decision { return decision{done, reason, message, 0} }
	ready := rolledPod("web-2", "web-a")
	setReady(ready, corev1.ConditionTrue, t0.Add(50*time.Second), "")
	const missing = "Waiting for a replacement: ReplicaSet web-a has 0 of 1 replicas available without this pod."
	gone := func(in *input) { in.set, in.deployment = nil, nil }
	deleting := func(set *appsv1.ReplicaSet) { set.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }
	cases := map[string]struct {
		change   func(*input)
		want     decision
		returned outcome
	}{
		"nobody is there yet":          {func(*input) {}, waits(missing, recheck), back},
		"the replacement is available": {func(in *input) { in.pods = []corev1.Pod{*ready} }, ends(reasonReplaced, "Replaced: ReplicaSet web-a has 1 of 1 replicas available without this pod."), back},
		"it is not ready for as long as the ReplicaSet wants": {func(in *input) {
			ofSet(func(set *appsv1.ReplicaSet) { set.Spec.MinReadySeconds = 30 })(in)
			in.pods = []corev1.Pod{*ready}
		}, waits(missing, 20*time.Second), back},
		"after the deadline":                 {func(in *input) { in.now = t0.Add(10 * time.Minute) }, gives(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 10m0s"), back},
		"no quota":                           {ofSet(cannot), gives(metrics.GivenBackFailed, "Not replaced beforehand: ReplicaSet web-a cannot create a replacement: exceeded quota: small"), back},
		"a rollout in the middle":            {func(in *input) { in.rival = "web-b" }, waits(missing, recheck), back},
		"a rollout that leaves no pods":      {scaledTo(0), gives(metrics.GivenBackScaledToZero, "ReplicaSet web-a is scaled to 0."), back},
		"the Rollout was deleted without it": {func(in *input) { in.set.OwnerReferences = nil }, waits(missing, recheck), back},
		"a number that nobody has seen":      {ofSet(func(set *appsv1.ReplicaSet) { set.Generation++ }), waits(missing, recheck), later},
		"the ReplicaSet is being deleted":    {ofSet(deleting), waits("ReplicaSet web-a is being deleted, and the pod with it.", recheck), leave},
		"it is deleted":                      {gone, waits("ReplicaSet web-a is deleted, and the pod with it.", recheck), leave},
		"the cache lost it":                  {func(in *input) { gone(in); in.live = false }, decision{verdict: look}, leave},
		"it is deleted without its pods":     {func(in *input) { gone(in); in.pod.OwnerReferences = in.pod.OwnerReferences[:1] }, ends(declinedDeleting, "Not replaced beforehand: ReplicaSet web-a was deleted without its pods."), leave},
		"another ReplicaSet took it":         {func(in *input) { in.pod.OwnerReferences = pod("x", "web-b").OwnerReferences; gone(in) }, ends(declinedNotOfDeployment, "Not replaced beforehand: the pod belongs to no Deployment."), leave},
		"a label that ties a pod to nothing": {func(in *input) {
			in.pod.Annotations[HandedUpAnnotation] = `{"hash":"x","label":"app","replicaSet":{"name":"web-a","uid":"web-a"}}`
			gone(in)
		}, ends(declinedDeleting, "Not replaced beforehand: its owner was deleted without its pods."), leave},
		"a pod of which nobody can tell more": {func(in *input) {
			in.pod.Annotations[HandedUpAnnotation] = `{"label":"app"}`
			in.pod.OwnerReferences = nil
			gone(in)
		}, ends(declinedDeleting, "Not replaced beforehand: its owner was deleted without its pods."), leave},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := free(t)
			tc.change(in)
			if diff := cmp.Diff(tc.want, step(in), cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if got := returnStep(in); got != tc.returned {
				t.Errorf("when it is not wanted any more: %d, want %d", got, tc.returned)
			}
		})
	}
}

// A pod that was set free has no controller, and is its ReplicaSet's as before when it is
// given back.
func TestSetFreeAndBack(t *testing.T) {
	const own = "example.com/own-pod-template-hash"
	cases := map[string]struct {
		label  string
		change func(*corev1.Pod)
	}{
		"a pod like any other":             {rolloutsTie, func(*corev1.Pod) {}},
		"one without annotations":          {rolloutsTie, func(p *corev1.Pod) { p.Annotations = nil }},
		"one with no other label":          {rolloutsTie, func(p *corev1.Pod) { p.Labels = map[string]string{rolloutsTie: hash} }},
		"one with no other owner":          {rolloutsTie, func(p *corev1.Pod) { p.OwnerReferences = p.OwnerReferences[1:] }},
		"one that was given back before":   {rolloutsTie, func(p *corev1.Pod) { p.Annotations[FailedAnnotation] = `{"request":"old"}` }},
		"the label of Deployments":         {hashLabel, func(p *corev1.Pod) { p.Labels[hashLabel] = hash }},
		"a label of somebody, with prefix": {own, func(p *corev1.Pod) { p.Labels[own] = hash }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := rolledPod("web-1", "web-a")
			tc.change(before)
			before.ResourceVersion = "999"
			patch, err := setFreePatch(before, tc.label, t0)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := apply(t, before.DeepCopy(), patch)
			if err != nil {
				t.Fatal(err)
			}
			rec, ok := handedUp(alone)
			if want := (record{Hash: hash, Label: tc.label, ReplicaSet: owner{"web-a", "web-a"}, At: metav1.NewTime(t0)}); !ok || rec.label() != want.Label || !rec.frees() {
				t.Errorf("record %+v, %t, want %+v", rec, ok, want)
			}
			if _, ok := alone.Labels[tc.label]; ok || len(alone.OwnerReferences) != len(before.OwnerReferences) || metav1.GetControllerOf(alone) != nil {
				t.Errorf("labels %v, owners %v", alone.Labels, alone.OwnerReferences)
			}
			if !collects(alone, rec) || holderOf(alone) != "web-a" {
				t.Errorf("it goes with its ReplicaSet: %t, it counts for %q", collects(alone, rec), holderOf(alone))
			}

			alone.ResourceVersion = "999"
			patch, err = giveBackPatch(alone, rec, nil)
			if err != nil {
				t.Fatal(err)
			}
			after, err := apply(t, alone.DeepCopy(), patch)
			if err != nil {
				t.Fatal(err)
			}
			want := before.DeepCopy()
			delete(want.Annotations, FailedAnnotation)
			after.ResourceVersion = want.ResourceVersion
			if len(after.Annotations) == 0 {
				after.Annotations = want.Annotations
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("the pod in the end (-want +got):\n%s", diff)
			}
		})
	}
	if patch, err := setFreePatch(rolledPod("web-1", "web-a"), builder.AppLabel, t0); err == nil {
		t.Errorf("another label is taken: %s", patch)
	}
}

func TestServiceBy(t *testing.T) {
	service := func(name string, selector map[string]string) corev1.Service {
		return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Selector: selector}}
	}
	both := map[string]string{builder.AppLabel: "web", rolloutsTie: hash}
	cases := map[string]struct {
		services []corev1.Service
		want     string
	}{
		"none":                              {},
		"by the application's labels":       {services: []corev1.Service{service("web", map[string]string{builder.AppLabel: "web"})}},
		"without a selector":                {services: []corev1.Service{service("web", nil)}},
		"of another revision":               {services: []corev1.Service{service("web", map[string]string{rolloutsTie: "other"})}},
		"of another application":            {services: []corev1.Service{service("db", map[string]string{builder.AppLabel: "db", rolloutsTie: hash})}},
		"by the label":                      {services: []corev1.Service{service("web", both)}, want: "web"},
		"the first of several, by its name": {services: []corev1.Service{service("web", both), service("active", both)}, want: "active"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := serviceBy(rolloutsTie, rolledPod("web-1", "web-a"), tc.services); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
