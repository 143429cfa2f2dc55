package surge

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// before is the input about the one pod of a Deployment that nothing keeps from
// being handed up.
func before() *input {
	p := pod("web-1", "web-new")
	set := replicaSet("web-new", 2, 1)
	return &input{
		now: t0, live: true, request: "er", activatedAt: t0, pod: p, set: set, deployment: deployment(1),
		replicas: 1, pods: []corev1.Pod{*p},
	}
}

// raised is the same a minute after the pod was handed up: its replacement is not
// there yet.
func raised(t *testing.T) *input {
	t.Helper()
	in := before()
	in.pod = up(t, in.pod, t0)
	in.now = t0.Add(time.Minute)
	in.pods = nil
	return in
}

// replacement is a pod of the ReplicaSet, made when the other was handed up.
func replacement(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := pod(name, "web-new")
	setReady(p, corev1.ConditionTrue, t0.Add(50*time.Second), "")
	for _, c := range change {
		c(p)
	}
	return *p
}

func unschedulable(p *corev1.Pod) {
	setReady(p, corev1.ConditionFalse, t0, "")
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: 3 Insufficient cpu.",
	})
}

func cannot(set *appsv1.ReplicaSet) {
	set.Status.Conditions = []appsv1.ReplicaSetCondition{{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota: small",
	}}
}

const (
	notOfOne   = "Not replaced beforehand: the pod belongs to no Deployment."
	noSurge    = "Not replaced beforehand: Deployment web has no strategy RollingUpdate with maxSurge above 0."
	stuckText  = "Not replaced beforehand: a rollout of Deployment web is paused or makes no progress."
	rollout    = "Waiting for the rollout of Deployment web."
	maxAtATime = "Waiting for other pods of Deployment web: its maxSurge allows 1 at a time."
)

func TestStepBeforehand(t *testing.T) {
	waits := func(message string, after time.Duration) decision { return decision{wait, "", message, after} }
	ends := func(reason, message string) decision { return decision{done, reason, message, 0} }
	hands := decision{handUp, "", "Waiting for a replacement to become available.", recheck}
	cases := map[string]struct {
		change func(*input)
		want   decision
	}{
		"nothing keeps it":                     {func(*input) {}, hands},
		"a look at the API server comes first": {func(in *input) { in.live = false }, decision{verdict: look}},
		"and before anything is declined":      {func(in *input) { in.live, in.set = false, nil }, decision{verdict: look}},
		"but not before waiting":               {func(in *input) { in.live, in.occupied.deployment = false, 1 }, waits(maxAtATime, recheck)},
		"the pod is gone":                      {func(in *input) { in.pod = nil }, waits("The pod is ending.", recheck)},
		"the pod is going":                     {func(in *input) { in.pod.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, waits("The pod is ending.", recheck)},
		"the pod has ended":                    {func(in *input) { in.pod.Status.Phase = corev1.PodSucceeded }, waits("The pod is ending.", recheck)},
		"no ReplicaSet":                        {func(in *input) { in.pod.OwnerReferences = nil; in.set, in.deployment = nil, nil }, ends(declinedNotOfDeployment, notOfOne)},
		"a StatefulSet":                        {func(in *input) { in.pod.OwnerReferences[1].Kind = "StatefulSet"; in.set, in.deployment = nil, nil }, ends(declinedNotOfDeployment, notOfOne)},
		"another API's ReplicaSet":             {func(in *input) { in.pod.OwnerReferences[1].APIVersion = "example.com/v1" }, ends(declinedNotOfDeployment, notOfOne)},
		"a ReplicaSet of nobody":               {func(in *input) { in.deployment = nil }, ends(declinedNotOfDeployment, notOfOne)},
		"no label of its ReplicaSet":           {func(in *input) { delete(in.pod.Labels, hashLabel) }, ends(declinedNotOfDeployment, "Not replaced beforehand: the pod has no label pod-template-hash.")},
		"the Deployment is deleted":            {func(in *input) { in.deployment.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, ends(declinedDeleting, "Not replaced beforehand: Deployment web is being deleted.")},
		"it is scaled to 0":                    {func(in *input) { in.deployment.Spec.Replicas = ptr.To[int32](0) }, ends(declinedScaledToZero, "Not replaced beforehand: Deployment web is scaled to 0.")},
		"no number of replicas means one":      {func(in *input) { in.deployment.Spec.Replicas = nil }, hands},
		"Recreate": {func(in *input) {
			in.deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}, ends(declinedNoSurge, noSurge)},
		"no surge":                       {func(in *input) { surgeOf(in, "0") }, ends(declinedNoSurge, noSurge)},
		"no percentage of surge":         {func(in *input) { surgeOf(in, "0%") }, ends(declinedNoSurge, noSurge)},
		"any percentage is one at least": {func(in *input) { surgeOf(in, "1%") }, hands},
		"never ready":                    {func(in *input) { in.pod.Status.Conditions = nil }, ends(declinedNotReady, "Not replaced beforehand: the pod has not been ready since 2026-05-04T10:00:00Z.")},
		"not ready for long":             {func(in *input) { setReady(in.pod, corev1.ConditionFalse, t0.Add(-10*time.Minute), "") }, ends(declinedNotReady, "Not replaced beforehand: the pod has not been ready since 2026-05-04T11:50:00Z.")},
		"only starting":                  {func(in *input) { setReady(in.pod, corev1.ConditionFalse, t0.Add(-9*time.Minute), "") }, hands},
		"a disk":                         {func(in *input) { in.volumes = volumes{true, "claim data can be mounted on one node only"} }, ends(declinedVolume, "Not replaced beforehand: claim data can be mounted on one node only.")},
		"volumes nobody has looked at":   {func(in *input) { in.pod.Spec.Volumes = claimVolume("data"); in.occupied.deployment = 1 }, decision{verdict: look}},
		"volumes that are fine":          {func(in *input) { in.pod.Spec.Volumes, in.volumes = claimVolume("data"), volumes{known: true} }, hands},
		"a spec nobody has seen":         {func(in *input) { in.deployment.Generation++ }, waits("Waiting for the controller of Deployment web.", recheckSoon)},
		"an old revision":                {func(in *input) { in.set = replicaSet("web-new", 1, 1) }, waits(rollout, recheck)},
		"an old one whose rollout is stuck": {func(in *input) {
			in.set = replicaSet("web-new", 1, 1)
			progressing(in, corev1.ConditionFalse, "ProgressDeadlineExceeded", t0)
		}, ends(declinedRolloutStuck, stuckText)},
		"an old one that is paused":     {func(in *input) { in.set = replicaSet("web-new", 1, 1); in.deployment.Spec.Paused = true }, ends(declinedRolloutStuck, stuckText)},
		"an old one after the deadline": {func(in *input) { in.set = replicaSet("web-new", 1, 1); in.now = t0.Add(10 * time.Minute) }, ends(declinedRolloutStuck, stuckText)},
		"an old one that got on since": {func(in *input) {
			in.set = replicaSet("web-new", 1, 1)
			in.now = t0.Add(10 * time.Minute)
			progressing(in, corev1.ConditionTrue, "", t0.Add(time.Second))
		}, waits(rollout, recheck)},
		"a paused one that needs nothing":      {func(in *input) { in.deployment.Spec.Paused = true }, hands},
		"a rollout has the surge":              {func(in *input) { in.replicas = 2 }, waits(rollout, recheck)},
		"and is stuck":                         {func(in *input) { in.replicas, in.deployment.Spec.Paused = 2, true }, ends(declinedRolloutStuck, stuckText)},
		"a rollout leaves some of the surge":   {func(in *input) { surgeOf(in, "2"); in.replicas = 2 }, hands},
		"a rollout and another have the surge": {func(in *input) { surgeOf(in, "2"); in.replicas, in.occupied.deployment = 2, 1 }, waits("Waiting for other pods of Deployment web: its maxSurge allows 2 at a time.", recheck)},
		"no quota":                             {func(in *input) { cannot(in.set) }, ends(declinedCannotCreate, "Not replaced beforehand: ReplicaSet web-new cannot create pods: exceeded quota: small.")},
		"another one is handed up":             {func(in *input) { in.occupied.deployment = 1 }, waits(maxAtATime, recheck)},
		"the cluster's limit":                  {func(in *input) { in.policy.ClusterLimit, in.occupied.cluster = 3, 3 }, waits("Waiting for pods of other Deployments: the cluster's limit is 3 at a time.", recheck)},
		"below the cluster's limit":            {func(in *input) { in.policy.ClusterLimit, in.occupied.cluster = 3, 2 }, hands},
		"no limit of the cluster":              {func(in *input) { in.occupied.cluster = 1000 }, hands},
		"it failed in the course of this":      {func(in *input) { in.pod.Annotations[FailedAnnotation] = `{"request":"er","message":"No room."}` }, ends(reasonFailed, "No room.")},
		"it failed, and one pod is too many":   {func(in *input) { failed(in); in.pods = append(in.pods, replacement("web-2")) }, waits("No room.", recheckSoon)},
		"it failed, and that one begins to go": {func(in *input) { failed(in); in.pods = append(in.pods, replacement("web-2", deleted(t0))) }, waits("No room.", recheckSoon)},
		"it failed, and that one goes": {func(in *input) {
			failed(in)
			in.pods = append(in.pods, replacement("web-2", deleted(t0.Add(-recheckSoon))))
		}, ends(reasonFailed, "No room.")},
		"it failed, and that one has failed": {func(in *input) { failed(in); in.pods = append(in.pods, replacement("web-2", phase(corev1.PodFailed))) }, ends(reasonFailed, "No room.")},
		"it failed, another set has too many": {func(in *input) {
			failed(in)
			in.pods = append(in.pods, replacement("web-2", func(p *corev1.Pod) { p.OwnerReferences[1].UID = "web-old" }))
		}, ends(reasonFailed, "No room.")},
		"it failed the time before": {func(in *input) { in.pod.Annotations[FailedAnnotation] = `{"request":"old","message":"No room."}` }, hands},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := before()
			tc.change(in)
			if diff := cmp.Diff(tc.want, step(in), cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// failed is what a pod remembers that was given back.
func failed(in *input) {
	in.pod.Annotations[FailedAnnotation] = `{"request":"er","message":"No room."}`
}

// deleted is a pod that was given 30 seconds to end at that time.
func deleted(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(at.Add(30*time.Second))), ptr.To[int64](30)
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func unready(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { setReady(p, corev1.ConditionFalse, t0, message) }
}

func surgeOf(in *input, maxSurge string) {
	in.deployment.Spec.Strategy = deploymentStrategy(maxSurge)
}

func claimVolume(claim string) []corev1.Volume {
	return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
}

func progressing(in *input, status corev1.ConditionStatus, reason string, updated time.Time) {
	in.deployment.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, LastUpdateTime: metav1.NewTime(updated),
	}}
}

func TestStepAfterwards(t *testing.T) {
	replaced := decision{done, reasonReplaced, "Replaced: Deployment web has 1 of 1 replicas available without this pod.", 0}
	waits := func(message string, after time.Duration) decision { return decision{wait, "", message, after} }
	back := func(reason, message string) decision { return decision{giveBack, reason, message, 0} }
	const missing = "Waiting for a replacement: Deployment web has 0 of 1 replicas available without this pod."
	ends := func(reason, message string) decision { return decision{done, reason, message, 0} }
	overdue := func(in *input) { in.now = t0.Add(10 * time.Minute) }
	tooLate := func(in *input) { in.now = t0.Add(20 * time.Minute) }
	cases := map[string]struct {
		change func(*input)
		want   decision
	}{
		"nobody is there yet":                {func(*input) {}, waits(missing, recheck)},
		"the replacement is available":       {func(in *input) { in.pods = []corev1.Pod{replacement("web-2")} }, replaced},
		"a look comes before the end":        {func(in *input) { in.live, in.pods = false, []corev1.Pod{replacement("web-2")} }, decision{verdict: look}},
		"a stale pod does not count":         {func(in *input) { in.pods = []corev1.Pod{*pod("web-1", "web-new")} }, waits(missing, recheck)},
		"one that has failed does not count": {func(in *input) { in.pods = []corev1.Pod{replacement("web-2", phase(corev1.PodFailed))} }, waits(missing, recheck)},
		"one that has failed says nothing": {func(in *input) {
			in.pods = []corev1.Pod{replacement("web-2", unschedulable, phase(corev1.PodFailed)), replacement("web-3", unready("not so fast"))}
		}, waits(missing+" not so fast", recheck)},
		"a deleted pod does not count": {func(in *input) {
			in.pods = []corev1.Pod{replacement("web-2", func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) })}
		}, waits(missing, recheck)},
		"one that is not ready": {func(in *input) {
			in.pods = []corev1.Pod{replacement("web-2", func(p *corev1.Pod) { setReady(p, corev1.ConditionFalse, t0, "not so fast") })}
		}, waits(missing+" not so fast", recheck)},
		"one that has no node":          {func(in *input) { in.pods = []corev1.Pod{replacement("web-2", unschedulable)} }, waits(missing+" 0/3 nodes are available: 3 Insufficient cpu.", recheck)},
		"one not ready for long enough": {func(in *input) { in.deployment.Spec.MinReadySeconds = 30; in.pods = []corev1.Pod{replacement("web-2")} }, waits(missing, 20*time.Second)},
		"one ready for long enough":     {func(in *input) { in.deployment.Spec.MinReadySeconds = 10; in.pods = []corev1.Pod{replacement("web-2")} }, replaced},
		"one of two": {func(in *input) {
			in.deployment.Spec.Replicas = ptr.To[int32](2)
			in.pods = []corev1.Pod{replacement("web-2")}
		}, waits("Waiting for a replacement: Deployment web has 1 of 2 replicas available without this pod.", recheck)},
		"shortly before the deadline": {func(in *input) { in.now = t0.Add(10*time.Minute - time.Second) }, waits(missing, time.Second)},
		"after the deadline":          {overdue, back(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 10m0s")},
		"after it, with a reason":     {func(in *input) { overdue(in); in.pods = []corev1.Pod{replacement("web-2", unschedulable)} }, back(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 10m0s: 0/3 nodes are available: 3 Insufficient cpu.")},
		"after it, but just in time":  {func(in *input) { overdue(in); in.pods = []corev1.Pod{replacement("web-2")} }, replaced},
		"after it, by the cache":      {func(in *input) { overdue(in); in.live = false }, decision{verdict: look}},
		"after ours":                  {func(in *input) { in.policy.ProgressDeadline = time.Minute }, back(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 1m0s")},
		"no deadline is the usual one": {func(in *input) {
			overdue(in)
			in.deployment.Spec.ProgressDeadlineSeconds = ptr.To[int32](math.MaxInt32)
		}, back(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 10m0s")},
		"no quota, at once": {func(in *input) { cannot(in.set) }, back(metrics.GivenBackFailed, "Not replaced beforehand: ReplicaSet web-new cannot create a replacement: exceeded quota: small")},
		"after it, in a rollout": {
			func(in *input) { overdue(in); in.deployment.Annotations[revisionAnnotation] = "3" },
			waits("Waiting for Deployment web to be available: the pod is of another revision and cannot be given back; no replacement became available within 10m0s", recheck),
		},
		"after it and once more, in a rollout": {
			func(in *input) { tooLate(in); in.deployment.Annotations[revisionAnnotation] = "3" },
			ends(declinedRolloutStuck, "Not replaced beforehand: no replacement became available within 10m0s, and the pod, which cannot be given back, has been waited for as long again"),
		},
		"shortly before that, in a rollout": {
			func(in *input) {
				tooLate(in)
				in.now = in.now.Add(-time.Second)
				in.deployment.Annotations[revisionAnnotation] = "3"
			},
			waits("Waiting for Deployment web to be available: the pod is of another revision and cannot be given back; no replacement became available within 10m0s", time.Second),
		},
		"after that, by the cache": {func(in *input) { tooLate(in); in.live, in.deployment.Annotations[revisionAnnotation] = false, "3" }, decision{verdict: look}},
		"after that, the replacement is available": {func(in *input) {
			tooLate(in)
			in.deployment.Annotations[revisionAnnotation] = "3"
			in.pods = []corev1.Pod{replacement("web-2")}
		}, replaced},
		"after that, of the current revision": {tooLate, back(metrics.GivenBackFailed, "Not replaced beforehand: no replacement became available within 10m0s")},
		"after that, and nobody has looked yet": {func(in *input) { tooLate(in); in.deployment.Generation++ }, ends(declinedRolloutStuck,
			"Not replaced beforehand: no replacement became available within 10m0s, and the pod, which cannot be given back, has been waited for as long again")},
		"after that, a Deployment that is not deleted in the end": {func(in *input) { tooLate(in); in.deployment.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, ends(declinedDeleting, "Not replaced beforehand: Deployment web is being deleted.")},
		"after it, before anybody looked":                         {func(in *input) { overdue(in); in.deployment.Generation++ }, waits("Waiting for the controller of Deployment web.", recheckSoon)},
		"scaled to 0":                                             {func(in *input) { in.deployment.Spec.Replicas = ptr.To[int32](0) }, back(metrics.GivenBackScaledToZero, "Deployment web is scaled to 0.")},
		"scaled to 0 by whom knows who":                           {func(in *input) { in.deployment.Spec.Replicas = ptr.To[int32](0); in.set = nil }, decision{done, declinedScaledToZero, "Deployment web is scaled to 0.", 0}},
		"the Deployment is being deleted":                         {func(in *input) { overdue(in); in.deployment.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, waits("Deployment web is being deleted, and the pod with it.", recheck)},
		"the Deployment is deleted":                               {func(in *input) { in.deployment = nil }, waits("Deployment web is deleted, and the pod with it.", recheck)},
		"the cache lost the Deployment":                           {func(in *input) { in.deployment, in.live = nil, false }, decision{verdict: look}},
		"it was deleted without its pods":                         {func(in *input) { in.deployment, in.pod.OwnerReferences = nil, nil }, back(metrics.GivenBackOrphaned, "Not replaced beforehand: Deployment web was deleted without its pods.")},
		"and the ReplicaSet, too":                                 {func(in *input) { in.deployment, in.set, in.pod.OwnerReferences = nil, nil, nil }, decision{done, declinedDeleting, "Not replaced beforehand: Deployment web was deleted without its pods.", 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := raised(t)
			tc.change(in)
			if diff := cmp.Diff(tc.want, step(in), cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReturnStep(t *testing.T) {
	cases := map[string]struct {
		change func(*input)
		want   outcome
	}{
		"as it was":                     {func(*input) {}, back},
		"the pod is gone":               {func(in *input) { in.pod = nil }, leave},
		"the pod is going":              {func(in *input) { in.pod.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, leave},
		"it is not handed up":           {func(in *input) { in.pod = pod("web-1", "web-new") }, leave},
		"another revision is current":   {func(in *input) { in.deployment.Annotations[revisionAnnotation] = "3" }, evict},
		"nobody has looked yet":         {func(in *input) { in.deployment.Generation++ }, later},
		"its ReplicaSet wants none":     {func(in *input) { in.set.Spec.Replicas = ptr.To[int32](0) }, evict},
		"its ReplicaSet is going":       {func(in *input) { in.set.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, evict},
		"its ReplicaSet is gone":        {func(in *input) { in.set = nil }, evict},
		"its ReplicaSet is another one": {func(in *input) { in.set.UID = "other" }, evict},
		"scaled to 0":                   {func(in *input) { in.deployment.Spec.Replicas = ptr.To[int32](0); in.deployment.Generation++ }, back},
		"scaled to 0 at another revision": {func(in *input) {
			in.deployment.Spec.Replicas = ptr.To[int32](0)
			in.set.Annotations[revisionAnnotation] = "1"
		}, back},
		"scaled to 0 without ReplicaSet":  {func(in *input) { in.deployment.Spec.Replicas = ptr.To[int32](0); in.set = nil }, evict},
		"the Deployment is being deleted": {func(in *input) { in.deployment.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }, leave},
		"the Deployment is gone":          {func(in *input) { in.deployment = nil }, leave},
		"it left its pods behind":         {func(in *input) { in.deployment, in.pod.OwnerReferences = nil, nil }, back},
		"and deleted the ReplicaSet":      {func(in *input) { in.deployment, in.set, in.pod.OwnerReferences = nil, nil, nil }, leave},
		"a damaged annotation":            {func(in *input) { in.pod.Annotations[HandedUpAnnotation] = "?"; in.set = nil }, evict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := raised(t)
			tc.change(in)
			if got := returnStep(in); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestVolumes(t *testing.T) {
	claim := func(spec, status []corev1.PersistentVolumeAccessMode) map[string]*corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		c.Spec.AccessModes, c.Status.AccessModes = spec, status
		return map[string]*corev1.PersistentVolumeClaim{"data": c}
	}
	modes := func(m ...corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode { return m }
	readOnly := claimVolume("data")
	readOnly[0].PersistentVolumeClaim.ReadOnly = true
	const oneNode = "claim data can be mounted on one node only"
	cases := map[string]struct {
		volumes []corev1.Volume
		claims  map[string]*corev1.PersistentVolumeClaim
		want    string
	}{
		"none":                           {},
		"one of its own":                 {volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, {VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
		"ReadWriteMany":                  {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadWriteMany), nil)},
		"ReadWriteOnce":                  {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadWriteOnce), nil), want: oneNode},
		"ReadWriteOncePod":               {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadWriteOncePod), nil), want: oneNode},
		"what there is counts":           {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadWriteOnce), modes(corev1.ReadWriteOnce, corev1.ReadWriteMany))},
		"ReadOnlyMany":                   {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadOnlyMany), nil)},
		"either, and the pod writes":     {volumes: claimVolume("data"), claims: claim(modes(corev1.ReadOnlyMany, corev1.ReadWriteOnce), nil), want: oneNode},
		"either, and the pod only reads": {volumes: readOnly, claims: claim(modes(corev1.ReadOnlyMany, corev1.ReadWriteOnce), nil)},
		"no claim of that name":          {volumes: claimVolume("data"), want: "claim data does not exist"},
		"a disk without a claim":         {volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}}}, want: "volume v is a disk that one node has at a time"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: tc.volumes}}
			if diff := cmp.Diff(volumes{true, tc.want}, judgeVolumes(p, tc.claims), cmp.AllowUnexported(volumes{})); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
			if looks := unknownVolumes(p); tc.want != "" && !looks {
				t.Error("nobody would have looked")
			}
		})
	}
}
