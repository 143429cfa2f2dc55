package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// LeaseLabel marks our Leases, so that an informer can select them; its value
// is LeaseLabelValue.
const (
	LeaseLabel      = v1alpha1.GroupName + "/requester-lease"
	LeaseLabelValue = "true"
)

// Annotations of a requester's Lease.
const (
	leaseRequesterAnnotation = v1alpha1.GroupName + "/requester"
	leaseNodeAnnotation      = v1alpha1.GroupName + "/node"
	leaseClassAnnotation     = v1alpha1.GroupName + "/caller-class"
	// LeaseMarkersAnnotation has the drain markers seen on the node while the
	// requester drained it, separated by commas.
	LeaseMarkersAnnotation = v1alpha1.GroupName + "/node-markers"
)

// LeaseRecord is what a Lease says: this requester drains this node and was last
// heard of at that time.
type LeaseRecord struct {
	// Requester is the name in spec.requesters.
	Requester string
	// Node is the node that is drained.
	Node string
	// Display names the caller for people.
	Display string
	// Class is the kind of tool.
	Class CallerClass
	// TTL is how long after RenewedAt the requester still counts, in whole
	// seconds, at least 1.
	TTL time.Duration
	// RenewedAt is when the caller was last heard of, in microseconds.
	RenewedAt time.Time
	// Markers are the drain markers seen on the node so far, sorted.
	Markers []string
}

// ExpiresAt is when the record runs out if nobody renews it.
func (r LeaseRecord) ExpiresAt() time.Time { return r.RenewedAt.Add(r.TTL) }

// LeaseName is the name of the one Lease of a requester and a node: readable at
// the front, unique by a hash, at most 63 characters.
func LeaseName(requester, node string) string {
	const readable, digits = 22, 16
	user, _, _ := strings.Cut(requester, ".")
	name := ""
	for _, part := range []string{sanitize(user, readable), sanitize(node, readable)} {
		if part != "" {
			name += part + "-"
		}
	}
	return name + shortHash(digits, requester, node)
}

// EncodeLease writes a record into a new Lease of that namespace.
func EncodeLease(rec LeaseRecord, namespace string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      LeaseName(rec.Requester, rec.Node),
			Labels:    map[string]string{LeaseLabel: LeaseLabelValue},
			Annotations: map[string]string{
				leaseRequesterAnnotation: rec.Requester,
				leaseNodeAnnotation:      rec.Node,
				leaseClassAnnotation:     string(rec.Class),
			},
		},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: new(seconds(rec.TTL)),
			RenewTime:            new(metav1.NewMicroTime(rec.RenewedAt)),
		},
	}
	if rec.Display != "" {
		lease.Spec.HolderIdentity = new(rec.Display)
	}
	if len(rec.Markers) > 0 {
		lease.Annotations[LeaseMarkersAnnotation] = EncodeMarkers(rec.Markers)
	}
	return lease
}

// seconds is a duration as a Lease has it: whole, and neither zero nor beyond
// what fits.
func seconds(d time.Duration) int32 {
	return int32(min(max(d/time.Second, 1), math.MaxInt32))
}

// EncodeMarkers is the value of LeaseMarkersAnnotation for these markers.
func EncodeMarkers(markers []string) string { return strings.Join(markers, ",") }

// DecodeLease reads a record back. It fails on a Lease that does not say who
// holds it, since when and for how long; a class we do not know is ClassUnknown.
func DecodeLease(lease *coordinationv1.Lease) (LeaseRecord, error) {
	rec := LeaseRecord{
		Requester: lease.Annotations[leaseRequesterAnnotation],
		Node:      lease.Annotations[leaseNodeAnnotation],
		Class:     CallerClass(lease.Annotations[leaseClassAnnotation]).known(),
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		rec.Display = *holder
	}
	if value := lease.Annotations[LeaseMarkersAnnotation]; value != "" {
		rec.Markers = strings.Split(value, ",")
		slices.Sort(rec.Markers)
	}
	var missing []string
	if rec.Requester == "" {
		missing = append(missing, "annotation "+leaseRequesterAnnotation)
	}
	if lease.Spec.RenewTime == nil {
		missing = append(missing, "spec.renewTime")
	} else {
		rec.RenewedAt = lease.Spec.RenewTime.Time
	}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds == nil || *seconds <= 0 {
		missing = append(missing, "spec.leaseDurationSeconds")
	} else {
		rec.TTL = time.Duration(*seconds) * time.Second
	}
	if len(missing) > 0 {
		return LeaseRecord{}, fmt.Errorf("decode lease %s/%s: missing %s", lease.Namespace, lease.Name, strings.Join(missing, ", "))
	}
	return rec, nil
}

// LeaseState is what a lease says about its requester.
type LeaseState int

const (
	// LeaseAlive says that the requester still wants the eviction.
	LeaseAlive LeaseState = iota
	// LeaseMarkersGone says that every drain marker recorded is gone from the node.
	// If that lasts for the debounce, the drain was called off.
	LeaseMarkersGone
	// LeaseExpired says that the requester has been silent for too long.
	LeaseExpired
)

func (s LeaseState) String() string {
	return [...]string{"Alive", "MarkersGone", "Expired"}[s]
}

// JudgeLease says what a lease means now. recheckAt is when the answer changes
// if nothing is written and the node stays as it is; zero means never.
//
// An unknown node proves nothing, and a node that is gone needs nothing: its
// pods go with it, and the requests complete by that.
func JudgeLease(rec LeaseRecord, node NodeView, now time.Time) (state LeaseState, recheckAt time.Time) {
	rule := rec.Class.rule()
	if rule.heldByDeletion && node.Known && !node.Gone && node.Deleting {
		return LeaseAlive, time.Time{}
	}
	expires := rec.ExpiresAt()
	if !now.Before(expires) {
		if rule.heldByDeletion && !node.Known && rec.Node != "" {
			return LeaseAlive, now.Add(rec.TTL)
		}
		return LeaseExpired, time.Time{}
	}
	if !rule.ignoresMarkers && node.Known && !node.Gone && len(rec.Markers) > 0 && !anyIn(rec.Markers, node.Markers) {
		return LeaseMarkersGone, expires
	}
	return LeaseAlive, expires
}

// anyIn reports whether one of the words is in list.
func anyIn(words, list []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
}
