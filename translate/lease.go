package translate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
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
	// leaseOthersAnnotation has the other kinds of tools that called under the same
	// name: CLASS/SECONDS@TIME, separated by commas.
	leaseOthersAnnotation    = v1alpha1.GroupName + "/other-callers"
	leaseRequesterAnnotation = v1alpha1.GroupName + "/requester"
	leaseNodeAnnotation      = v1alpha1.GroupName + "/node"
	leaseClassAnnotation     = v1alpha1.GroupName + "/caller-class"
	// LeaseMarkersAnnotation has the drain markers seen on the node while the
	// requester drained it, separated by commas.
	LeaseMarkersAnnotation = v1alpha1.GroupName + "/node-markers"
)

// LeaseRecord is the content of a Lease: this requester drains this node and last
// called at that time. Several tools may use one name; each has its own TTL, and the
// requester is interested as long as one of them is.
type LeaseRecord struct {
	// Requester is the name in spec.requesters.
	Requester string
	// Node is the node that is drained.
	Node string
	// Display names the caller for people.
	Display string
	// Class is the kind of tool that called last.
	Class CallerClass
	// TTL is how long it may be silent, in whole seconds, at least 1. See Granted.
	TTL time.Duration
	// RenewedAt is when it last called, in microseconds.
	RenewedAt time.Time
	// Others are the other kinds of tools that called, sorted by class.
	Others []Voice
	// Markers are the drain markers seen on the node so far, sorted.
	Markers []string
}

// Voice is one kind of tool that calls under a requester's name.
type Voice struct {
	Class CallerClass
	// TTL is how long it may be silent, in whole seconds, at least 1.
	TTL time.Duration
	// HeardAt is when it last called, in microseconds.
	HeardAt time.Time
}

// Voices are all kinds of tools that called, the latest first.
func (r LeaseRecord) Voices() []Voice {
	return append([]Voice{{Class: r.Class, TTL: r.TTL, HeardAt: r.RenewedAt}}, r.Others...)
}

// Voice returns the entry of a kind of tool.
func (r LeaseRecord) Voice(class CallerClass) (Voice, bool) {
	for _, v := range r.Voices() {
		if v.Class == class {
			return v, true
		}
	}
	return Voice{}, false
}

// Hear returns the record after a call of a tool. The display names it for people.
func (r LeaseRecord) Hear(v Voice, display string) LeaseRecord {
	others := []Voice{}
	for _, other := range r.Voices() {
		if other.Class != v.Class {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b Voice) int { return strings.Compare(string(a.Class), string(b.Class)) })
	r.Class, r.TTL, r.RenewedAt, r.Display, r.Others = v.Class, v.TTL, v.HeardAt, display, others
	if len(others) == 0 {
		r.Others = nil
	}
	return r
}

// With returns the record with other HeardAt times.
func (r LeaseRecord) With(heardAt func(Voice) time.Time) LeaseRecord {
	main, others := r.Voices()[0], make([]Voice, len(r.Others))
	for i, v := range r.Others {
		others[i] = v
		others[i].HeardAt = heardAt(v)
	}
	r.RenewedAt = heardAt(main)
	if len(others) > 0 {
		r.Others = others
	}
	return r
}

// LastHeard is when any of the tools last called.
func (r LeaseRecord) LastHeard() time.Time {
	last := r.RenewedAt
	for _, v := range r.Others {
		if v.HeardAt.After(last) {
			last = v.HeardAt
		}
	}
	return last
}

// RenewEvery is how often calls renew a lease at most, so that however often a tool
// calls, its lease is written three times per TTL.
func RenewEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// Granted is how long after the last renewal a lease is valid: since the tool may have
// called until the next renewal was due, it is never withdrawn before it was silent for
// its TTL, and at most a third of the TTL later.
func Granted(ttl time.Duration) time.Duration { return ttl + RenewEvery(ttl) }

// LeaseName is the name of the Lease of a requester and a node: it starts readable, is
// unique by a hash, and has at most 63 characters.
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
	if len(rec.Others) > 0 {
		lease.Annotations[leaseOthersAnnotation] = encodeVoices(rec.Others)
	}
	return lease
}

func encodeVoices(voices []Voice) string {
	words := make([]string, 0, len(voices))
	for _, v := range voices {
		words = append(words, fmt.Sprintf("%s/%d@%s", v.Class, seconds(v.TTL), v.HeardAt.UTC().Format(metav1.RFC3339Micro)))
	}
	return strings.Join(words, ",")
}

// decodeVoices ignores invalid entries and unknown classes.
func decodeVoices(value string) (voices []Voice) {
	for word := range strings.SplitSeq(value, ",") {
		class, rest, _ := strings.Cut(word, "/")
		ttl, at, _ := strings.Cut(rest, "@")
		seconds, err := strconv.ParseInt(ttl, 10, 32)
		heard, err2 := time.Parse(metav1.RFC3339Micro, at)
		if err != nil || err2 != nil || seconds <= 0 || CallerClass(class).known() != CallerClass(class) {
			continue
		}
		voices = append(voices, Voice{Class: CallerClass(class), TTL: time.Duration(seconds) * time.Second, HeardAt: heard})
	}
	return voices
}

// seconds is a duration as a Lease has it: whole, and neither zero nor beyond
// what fits.
func seconds(d time.Duration) int32 {
	return int32(min(max(d/time.Second, 1), math.MaxInt32))
}

// EncodeMarkers is the value of LeaseMarkersAnnotation for these markers.
func EncodeMarkers(markers []string) string { return strings.Join(markers, ",") }

// DecodeLease reads a record back. It fails on a Lease without holder, renew time or
// duration; an unknown class becomes ClassUnknown.
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
	if value := lease.Annotations[leaseOthersAnnotation]; value != "" {
		rec.Others = slices.DeleteFunc(decodeVoices(value), func(v Voice) bool { return v.Class == rec.Class })
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
