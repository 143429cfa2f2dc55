package surge

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// verdict is what step decides.
type verdict int

const (
	// wait: decide again later.
	wait verdict = iota + 1
	// look: decide again immediately, with live objects.
	look
	// handUp: take the pod from its ReplicaSet.
	handUp
	// giveBack: give the pod back, and complete.
	giveBack
	// done: complete.
	done
)

// Reasons of decisions that end a turn; they are values of a metric's label.
const (
	declinedNotOfDeployment = "not-of-a-deployment"
	declinedNoSurge         = "no-surge"
	declinedScaledToZero    = "scaled-to-zero"
	declinedDeleting        = "deployment-deleted"
	declinedNotReady        = "not-ready"
	declinedVolume          = "volume"
	declinedService         = "service"
	declinedRolloutStuck    = "rollout-stuck"
	declinedCannotCreate    = "cannot-create"

	reasonReplaced = "replaced"
	// reasonFailed: it was counted when the pod was given back.
	reasonFailed = "failed"
)

const (
	// recheck is when to decide again if no event of a Deployment, ReplicaSet or pod
	// comes first.
	recheck = time.Minute
	// recheckSoon is for what a controller does soon.
	recheckSoon = 2 * time.Second
)

// decision is what to do about a pod, and what to report.
type decision struct {
	verdict    verdict
	reason     string
	message    string
	checkAfter time.Duration
}

// check is one rule. It reports whether it decides.
type check func(in *input) (decision, bool)

// beforehand is why a pod is not handed up (yet); the first that decides counts.
var beforehand = []check{
	hasFailedBefore,        // or it would be tried forever
	belongsToNoDeployment,  // there is nobody to make a replacement
	deploymentDoesNotSurge, // its owner does not want more pods than replicas, not even for a moment
	isNotReady,             // there is nothing to keep available, and a replacement would not be ready either
	volumesAreExclusive,    // the replacement could not start
	wouldLeaveItsService,   // it would stop serving at once
	rolloutIsUnderWay,      // the pod is going anyway, or the surge is in use
	replicaSetCannotCreate, // there would be no replacement
	deploymentLimitIsInUse, // maxSurge limits the cost of nodes
	clusterLimitIsInUse,    // the administrator's limit
	decidesOnTheAPIServer,  // nothing is done because of a cache
}

// step decides about a pod whose turn it is.
func step(in *input) decision {
	if ended(in.pod) {
		return waiting(recheck, "The pod is ending.")
	}
	if rec, ok := handedUp(in.pod); ok {
		return afterwards(in, rec)
	}
	for _, c := range beforehand {
		if d, ok := c(in); ok {
			return d
		}
	}
	return decision{verdict: handUp, message: "Waiting for a replacement to become available.", checkAfter: recheck}
}

func waiting(after time.Duration, format string, args ...any) decision {
	return decision{verdict: wait, message: fmt.Sprintf(format, args...), checkAfter: after}
}

// declined completes without changing the pod (statement 110).
func (in *input) declined(reason, format string, args ...any) (decision, bool) {
	return in.ends(done, reason, "Not replaced beforehand: "+fmt.Sprintf(format, args...)+"."), true
}

// ends decides something irreversible, so it needs live objects.
func (in *input) ends(v verdict, reason, message string) decision {
	if !in.live {
		return decision{verdict: look}
	}
	return decision{verdict: v, reason: reason, message: message}
}

func undecided() (decision, bool) { return decision{}, false }

// hasFailedBefore hands over once the pod that was too many is gone. Until then a
// budget counts both, and would allow to evict the one while the ReplicaSet removes
// the other.
func hasFailedBefore(in *input) (decision, bool) {
	message, ok := failedBefore(in.pod, in.request)
	switch {
	case !ok:
		return undecided()
	case in.unsettled():
		return waiting(recheckSoon, "%s", message), true
	}
	return in.ends(done, reasonFailed, message), true
}

func belongsToNoDeployment(in *input) (decision, bool) {
	switch _, controller := controllerOf(in.pod); {
	case controller != nil && isCloneSet(controller):
		return in.declined(declinedNotOfDeployment, "%s", whyNotCloneSet(controller))
	case controller == nil || !isReplicaSet(controller) || in.set == nil:
		return in.declined(declinedNotOfDeployment, belongsToNone)
	case in.deployment == nil:
		return in.declined(declinedNotOfDeployment, "%s", whyNotLeft(in.set))
	case in.pod.Labels[in.tie()] == "":
		return in.declined(declinedNotOfDeployment, "the pod has no label %s", in.tie())
	case in.deployment.DeletionTimestamp != nil || in.set.DeletionTimestamp != nil:
		return in.declined(declinedDeleting, "%s is being deleted", in.named())
	}
	return undecided()
}

func deploymentDoesNotSurge(in *input) (decision, bool) {
	switch {
	case wanted(in.deployment) == 0:
		return in.declined(declinedScaledToZero, "%s is scaled to 0", in.named())
	case maxSurge(in.deployment) == 0:
		return in.declined(declinedNoSurge, "%s has no strategy RollingUpdate with maxSurge above 0", in.named())
	}
	return undecided()
}

// isNotReady skips pods that have not been ready for as long as a replacement may take.
// A pod that is still starting is different: in a drain that goes from node to node it
// is an earlier replacement, and its budget will block as soon as it is ready.
func isNotReady(in *input) (decision, bool) {
	since := notReadySince(in.pod)
	if since.IsZero() || in.now.Before(since.Add(in.policy.deadline(in.deployment))) {
		return undecided()
	}
	return in.declined(declinedNotReady, "the pod has not been ready since %s", since.UTC().Format(time.RFC3339))
}

func volumesAreExclusive(in *input) (decision, bool) {
	switch {
	case in.volumes.obstacle != "":
		return in.declined(declinedVolume, "%s", in.volumes.obstacle)
	case !in.volumes.known && unknownVolumes(in.pod):
		return decision{verdict: look}, true
	}
	return undecided()
}

// wouldLeaveItsService keeps a pod with its label if a Service needs it: those of a Rollout
// that is blue-green, or that routes traffic, select the pods of one ReplicaSet.
func wouldLeaveItsService(in *input) (decision, bool) {
	if in.service == "" {
		return undecided()
	}
	return in.declined(declinedService, "Service %s selects its pods by the label %s, which the pod would lose, and it would stop serving before there is a replacement", in.service, in.tie())
}

func rolloutIsUnderWay(in *input) (decision, bool) {
	d := in.deployment
	if !observed(d) {
		return waiting(recheckSoon, "Waiting for the controller of %s.", in.named()), true
	}
	old := !current(d, in.set)
	surplus := in.replicas - wanted(d)
	if !old && surplus < maxSurge(d) && in.rival == "" {
		return undecided()
	}
	since := in.activatedAt
	if at := progressed(d); at.After(since) {
		since = at
	}
	// Without its own deadline a rollout never counts as stuck.
	if stuck(d) || !in.now.Before(since.Add(in.policy.deadline(d))) {
		return in.declined(declinedRolloutStuck, "a rollout of %s is paused or makes no progress", in.rolledOut())
	}
	return waiting(recheck, "Waiting for the rollout of %s.", in.rolledOut()), true
}

// rolledOut is what a rollout is of. Who it is above a ReplicaSet is not looked up: it is
// its other ReplicaSet that people have to know of.
func (in *input) rolledOut() string {
	if in.rival == "" {
		return in.named()
	}
	return fmt.Sprintf("the owner of %s (ReplicaSet %s wants pods, too)", in.named(), in.rival)
}

func replicaSetCannotCreate(in *input) (decision, bool) {
	if why := cannotCreate(in.set); why != "" {
		return in.declined(declinedCannotCreate, "ReplicaSet %s cannot create pods: %s", in.set.Name, why)
	}
	return undecided()
}

func deploymentLimitIsInUse(in *input) (decision, bool) {
	limit := maxSurge(in.deployment)
	if in.occupied.deployment+max(in.replicas-wanted(in.deployment), 0) < limit {
		return undecided()
	}
	if in.setsFree() {
		return waiting(recheck, "Waiting for other pods of %s: %d at a time.", in.named(), limit), true
	}
	return waiting(recheck, "Waiting for other pods of %s: its maxSurge allows %d at a time.", in.named(), limit), true
}

func clusterLimitIsInUse(in *input) (decision, bool) {
	if in.policy.ClusterLimit <= 0 || in.occupied.cluster < in.policy.ClusterLimit {
		return undecided()
	}
	return waiting(recheck, "Waiting for pods of other Deployments: the cluster's limit is %d at a time.", in.policy.ClusterLimit), true
}

func decidesOnTheAPIServer(in *input) (decision, bool) {
	return decision{verdict: look}, !in.live
}

// afterwards decides about a pod that was handed up.
func afterwards(in *input, rec record) decision {
	d := in.deployment
	if d == nil {
		return withoutDeployment(in, rec)
	}
	have, next := in.available()
	switch want := wanted(d); {
	case want == 0 && unwanted(in, rec):
		return in.ends(giveBack, metrics.GivenBackScaledToZero, in.named()+" is scaled to 0.")
	case want == 0:
		return in.ends(done, declinedScaledToZero, in.named()+" is scaled to 0.")
	case have >= want:
		return in.ends(done, reasonReplaced, fmt.Sprintf("Replaced: %s has %d of %d replicas available without this pod.", in.named(), have, want))
	case d.DeletionTimestamp != nil && in.tooLate(rec):
		return in.ends(done, declinedDeleting, fmt.Sprintf("Not replaced beforehand: %s is being deleted.", in.named()))
	case d.DeletionTimestamp != nil:
		return waiting(recheck, "%s is being deleted, and the pod with it.", in.named())
	}

	why := ""
	dueAt := rec.At.Add(in.policy.deadline(d))
	if text := cannotCreate(in.set); text != "" {
		why = fmt.Sprintf("ReplicaSet %s cannot create a replacement: %s", rec.ReplicaSet.Name, text)
	} else if !in.now.Before(dueAt) {
		why = fmt.Sprintf("no replacement became available within %s", in.policy.deadline(d))
		if text := in.obstacle(); text != "" {
			why += ": " + text
		}
	}
	switch {
	case why != "" && returnable(in, rec):
		return in.ends(giveBack, metrics.GivenBackFailed, "Not replaced beforehand: "+why)
	case in.tooLate(rec):
		return in.ends(done, declinedRolloutStuck, fmt.Sprintf("Not replaced beforehand: %s, and the pod, which cannot be given back, has been waited for as long again", why))
	case why != "" && !observed(d):
		return waiting(recheckSoon, "Waiting for the controller of %s.", in.named())
	case why != "":
		// Evicting it now would cause downtime; the rollout will continue or be fixed.
		return waiting(min(recheck, in.lastDeadline(rec).Sub(in.now)), "Waiting for %s to be available: the pod is of another revision and cannot be given back; %s", in.named(), why)
	}
	after := min(recheck, dueAt.Sub(in.now))
	if !next.IsZero() {
		after = min(after, next.Sub(in.now))
	}
	message := fmt.Sprintf("Waiting for a replacement: %s has %d of %d replicas available without this pod.", in.named(), have, wanted(d))
	if text := in.obstacle(); text != "" {
		message += " " + text
	}
	return decision{verdict: wait, message: message, checkAfter: max(after, time.Millisecond)}
}

// lastDeadline is how long to wait for a handed-up pod that cannot be given back: twice
// as long as its replacement may take. The newer rollout may never succeed, and the
// drain must end; then the budget decides about the eviction.
func (in *input) lastDeadline(rec record) time.Time {
	return rec.At.Add(2 * in.policy.deadline(in.deployment))
}

func (in *input) tooLate(rec record) bool { return !in.now.Before(in.lastDeadline(rec)) }

// withoutDeployment is for a pod whose Deployment, or the ReplicaSet that it was set free
// from, is gone: garbage collection deletes the pod, unless orphans were requested.
func withoutDeployment(in *input, rec record) decision {
	goes := collects(in.pod, rec)
	left := fmt.Sprintf("Not replaced beforehand: %s was deleted without its pods.", rec.named())
	switch {
	case goes && !in.live:
		return decision{verdict: look} // The cache may lag.
	case goes:
		return waiting(recheck, "%s is deleted, and the pod with it.", rec.named())
	case returnable(in, rec):
		return in.ends(giveBack, metrics.GivenBackOrphaned, left)
	default:
		return in.ends(done, declinedDeleting, left)
	}
}

// returnable reports whether the pod can be given back: its ReplicaSet is the
// current one and wants replicas. Any other would delete it at once.
func returnable(in *input, rec record) bool {
	set := in.set
	return takes(set, rec) && (set.Spec.Replicas == nil || *set.Spec.Replicas > 0) &&
		(in.deployment == nil || in.deployment.DeletionTimestamp == nil && observed(in.deployment) && current(in.deployment, set))
}

// unwanted reports whether giving the pod back deletes it: the Deployment wants no
// pods, so its ReplicaSets delete them. An eviction would not work, because no budget
// allows one while it expects no pods (kubernetes:
// pkg/controller/disruption/disruption.go, updatePdbStatus).
func unwanted(in *input, rec record) bool {
	return in.deployment != nil && in.deployment.DeletionTimestamp == nil && wanted(in.deployment) == 0 && takes(in.set, rec)
}

// takes reports whether the ReplicaSet is the one the pod was taken from, and is not
// being deleted.
func takes(set *appsv1.ReplicaSet, rec record) bool {
	return set != nil && set.UID == rec.ReplicaSet.UID && set.DeletionTimestamp == nil && rec.Hash != ""
}

// outcome is what returnStep decides.
type outcome int

const (
	// leave: there is nothing to give back.
	leave outcome = iota + 1
	// back: give the pod back.
	back
	// evict: it can no longer be given back, so it must be evicted, once its Deployment
	// is full.
	evict
	// later: it is not known yet.
	later
)

// returnStep decides about a handed-up pod whose eviction is no longer wanted. The
// input must be live.
func returnStep(in *input) outcome {
	if ended(in.pod) {
		return leave
	}
	rec, ok := handedUp(in.pod)
	if !ok {
		return leave
	}
	switch d := in.deployment; {
	case d == nil && collects(in.pod, rec), d != nil && d.DeletionTimestamp != nil:
		return leave // Garbage collection deletes it.
	case returnable(in, rec), unwanted(in, rec):
		return back
	case d == nil:
		return leave // An orphan of orphans: its owner decides.
	case !observed(d):
		return later
	default:
		return evict
	}
}
