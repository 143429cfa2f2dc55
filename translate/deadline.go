package translate

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Learnt is a deadline that nobody set in a request: it stands elsewhere in the API. The
// zero value is none.
type Learnt struct {
	// Source says where it stands, for people, at most 700 characters.
	Source string
	// At is when the pod has to have ended.
	At time.Time
	// After is for a source that does not say since when it is there: how long after it
	// was first seen the pod has to have ended. Then At is zero.
	After time.Duration
}

// DeadlineKind is a kind of objects that say when a node goes.
type DeadlineKind struct {
	// Option is its name in the configuration.
	Option string
	schema.GroupKind
	// Of reads the name of the node, empty if there is none yet, and the deadline.
	Of func(*unstructured.Unstructured) (node string, d Learnt)
	// Fields are what Of reads.
	Fields [][]string
	// Concerns reports whether a node has an object of the kind. So the kinds of others
	// need not be looked for.
	Concerns func(*corev1.Node) bool
}

// Names by which Karpenter and Cluster API are known on a node.
const (
	karpenterGroup        = "karpenter.sh"
	karpenterPoolLabel    = "karpenter.sh/nodepool"
	karpenterTerminatesAt = "karpenter.sh/nodeclaim-termination-timestamp"
	machineAnnotation     = "cluster.x-k8s.io/machine"
)

// DeadlineKinds are all kinds that deadlines are learnt from. They must not be changed.
func DeadlineKinds() []DeadlineKind { return deadlineKinds }

var deadlineKinds = []DeadlineKind{
	{
		Option: "karpenter", GroupKind: schema.GroupKind{Group: karpenterGroup, Kind: "NodeClaim"}, Of: claimDeadline,
		Fields: [][]string{{"metadata", "deletionTimestamp"}, {"metadata", "annotations", karpenterTerminatesAt}, {"status", "nodeName"}},
		Concerns: func(node *corev1.Node) bool {
			if _, ok := node.Labels[karpenterPoolLabel]; ok {
				return true
			}
			for _, owner := range node.OwnerReferences {
				if owner.Kind == "NodeClaim" && strings.HasPrefix(owner.APIVersion, karpenterGroup+"/") {
					return true
				}
			}
			return false
		},
	},
	{
		Option: "cluster-api", GroupKind: schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, Of: machineDeadline,
		Fields: [][]string{
			{"spec", "nodeDrainTimeout"}, {"spec", "deletion", "nodeDrainTimeoutSeconds"},
			{"status", "deletion", "nodeDrainStartTime"}, {"status", "nodeRef", "name"},
		},
		Concerns: func(node *corev1.Node) bool {
			_, ok := node.Annotations[machineAnnotation]
			return ok
		},
	},
}

// claimDeadline: Karpenter deletes a pod at this time, less the pod's own grace period
// (callers.md, section 17). It sets the annotation when the NodeClaim is deleted, if that
// has a terminationGracePeriod, or when it repairs the node, then to that moment. A person may
// set it before; until the NodeClaim is deleted it means nothing.
func claimDeadline(claim *unstructured.Unstructured) (string, Learnt) {
	node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
	at, ok := timeIn(claim.GetAnnotations()[karpenterTerminatesAt])
	if !ok || claim.GetDeletionTimestamp() == nil {
		return node, Learnt{}
	}
	return node, Learnt{Source: "NodeClaim " + claim.GetName(), At: at}
}

// machineDeadline: Cluster API stops to drain when the timeout is over, and deletes the
// machine with what is on it. 0 is no timeout. The first field is that of v1beta1.
func machineDeadline(machine *unstructured.Unstructured) (string, Learnt) {
	node, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
	var timeout time.Duration
	if text, found, _ := unstructured.NestedString(machine.Object, "spec", "nodeDrainTimeout"); found {
		timeout, _ = time.ParseDuration(text)
	}
	if seconds, found, _ := unstructured.NestedInt64(machine.Object, "spec", "deletion", "nodeDrainTimeoutSeconds"); found && seconds < int64(maxTimeout/time.Second) {
		timeout = time.Duration(seconds) * time.Second
	}
	text, _, _ := unstructured.NestedString(machine.Object, "status", "deletion", "nodeDrainStartTime")
	began, ok := timeIn(text)
	if !ok || timeout <= 0 || timeout > maxTimeout {
		return node, Learnt{}
	}
	return node, Learnt{Source: "Machine " + machine.GetNamespace() + "/" + machine.GetName(), At: began.Add(timeout)}
}

// maxTimeout is more than anybody waits. Longer ones would overflow.
const maxTimeout = 10 * 365 * 24 * time.Hour

// timeIn reads a time that the API can hold as well: a wrong one is none.
func timeIn(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Unix() <= 0 || at.UTC().Year() > 9000 {
		return time.Time{}, false
	}
	return at, true
}

// TaintDeadlines are the deadlines that the taints of a node announce, of those in the
// table, which says how long after a taint the node goes.
func TaintDeadlines(node *corev1.Node, table map[string]time.Duration) []Learnt {
	var learnt []Learnt
	for _, taint := range node.Spec.Taints {
		after, ok := table[taint.Key]
		if !ok {
			continue
		}
		d := Learnt{Source: "taint " + taint.Key + " of node " + node.Name}
		if taint.TimeAdded != nil {
			d.At = taint.TimeAdded.Add(after)
		} else {
			d.After = after
		}
		learnt = append(learnt, d)
	}
	return learnt
}

// PatienceDeadline is how long the tools of a lease wait at most, of those in the table,
// from the beginning of their drain.
func PatienceDeadline(rec LeaseRecord, began time.Time, table map[CallerClass]time.Duration) (Learnt, bool) {
	first := Learnt{}
	for _, voice := range rec.Voices() {
		patience, ok := table[voice.Class]
		if at := began.Add(patience); ok && (first.At.IsZero() || at.Before(first.At)) {
			first = Learnt{Source: "requester " + rec.Requester + ", which waits " + patience.String() + " (" + string(voice.Class) + ")", At: at}
		}
	}
	return first, !first.At.IsZero()
}
