package maintenance

import (
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// evictPause is when the eviction of a pod of a DaemonSet is called again for the first time, and
// maxEvictPause for the last. The pause doubles with each refusal.
const (
	evictPause    = 5 * time.Second
	maxEvictPause = time.Minute
)

// Daemon is what a decision needs to know about the pod of a DaemonSet that a maintenance evicts
// in a wave of its own.
type Daemon struct {
	// Takers are the maintenances in whose wave it is, at least one. No decision depends on them.
	Takers []string
	// Begun: this wave of one of them has begun on the node.
	Begun bool
	// Tainted: the node has the taint that keeps the DaemonSet from making the pod again.
	Tainted bool
	// Tolerates: the pod tolerates this taint, and would be made again. It may be false because
	// nobody knows if the pod is being deleted.
	Tolerates bool
	// Refusal is why the last call was refused; empty if it was not.
	Refusal string
	// Again is when to call again; zero if nobody has called yet.
	Again time.Time
}

// daemonStep decides about the pod of a DaemonSet. No interceptor and no request has to do with it
// (statement 78): it is evicted as soon as it would not be made again.
func (in *PodInput) daemonStep() PodDecision {
	d := PodDecision{Request: removeOurs(in.Request), Initiated: removeOurs(in.Initiated), Leave: in.leave()}
	pod := in.Daemon
	if pod.Tolerates {
		return d
	}
	d.Class = ClassPending
	switch {
	case in.Deleting, !pod.Begun:
		d.Block, d.WakeAt = in.stays()
	case !pod.Tainted: // The node will show it.
	case in.Now.Before(pod.Again):
		d.Block, d.WakeAt = pod.block(), pod.Again
	default:
		d.Evict, d.Block, d.WakeAt = true, pod.block(), in.Now.Add(evictPause)
	}
	return d
}

// block is why the pod is still there, nil if nothing is known to keep it.
func (d *Daemon) block() *Block {
	if d.Refusal == "" {
		return nil
	}
	return &Block{v1alpha1.BlockEvictionRefused, d.Refusal}
}
