// Package charge finds out who moves the Evictions of lifecycle.k8s.io. Kubernetes 1.37 serves
// that API without controllers, and later versions bring their own. Two that both force their
// writes would fight, so there is never more than one: when another one appears, Drawbridge lets
// go at once and for good, until a person says otherwise.
package charge

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode says who may be in charge.
type Mode string

// The modes.
const (
	// Auto: Drawbridge, unless somebody else is seen to be.
	Auto Mode = "Auto"
	// Drawbridge: the same, whatever was seen before it took charge.
	Drawbridge Mode = "Drawbridge"
	// Cluster: never Drawbridge, which is only a requester and a responder.
	Cluster Mode = "Cluster"
	// Off: Drawbridge does not look at the API.
	Off Mode = "Off"
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Auto, Drawbridge, Cluster, Off} }

// State is what is remembered. The zero value is nothing.
type State struct {
	// InCharge is Drawbridge or Cluster, "" if it was never decided.
	InCharge Mode
	// Since is when that began. What others wrote before does not count against Drawbridge.
	Since time.Time
	// Because says why, for people.
	Because string
}

// Evidence is a write of another controller. The zero value is none.
type Evidence struct {
	// Manager is its field manager, Eviction what it wrote to.
	Manager, Eviction string
	At                time.Time
	// Running: that Eviction had not ended.
	Running bool
}

// Input is everything that a decision depends on.
type Input struct {
	Mode Mode
	// Served: the API is served.
	Served bool
	State  State
	// Deleted: a person has deleted what was remembered, while this process ran. Then what was
	// seen before does not count.
	Deleted bool
	// Seen is the last write of another controller, Running the last one to an Eviction that ran.
	Seen, Running Evidence
	Now           time.Time
}

// Decision is who is in charge, and what to remember of it.
type Decision struct {
	InCharge bool
	// Remember is the state to write, nil if it stays.
	Remember *State
}

// Decide is pure and total.
func Decide(in Input) Decision {
	seen := in.Seen.Manager != ""
	switch {
	case !in.Served, in.Mode == Off, in.Mode == Cluster:
		return Decision{}
	case in.State.InCharge == "" && in.Mode == Auto && !in.Deleted && in.Running.Manager != "":
		return Decision{Remember: &State{InCharge: Cluster, Since: in.Now, Because: in.Running.because()}}
	case in.State.InCharge == "":
		return Decision{InCharge: true, Remember: &State{InCharge: Drawbridge, Since: in.Now, Because: "Nobody else was seen to write the status of Evictions."}}
	case in.State.InCharge != Drawbridge:
		return Decision{}
	case seen && !in.Seen.At.Before(in.State.Since):
		return Decision{Remember: &State{InCharge: Cluster, Since: in.Now, Because: in.Seen.because()}}
	default:
		return Decision{InCharge: true}
	}
}

func (e Evidence) because() string {
	return fmt.Sprintf("%s wrote the status of Eviction %s at %s.", e.Manager, e.Eviction, e.At.UTC().Format(time.RFC3339))
}

// owned are the fields of the status that belong to the controller. Items of responders are
// theirs.
var owned = []string{"f:targetResponders", "f:conditions", "f:requesters", "f:observedGeneration"}

// Foreign is the last write of another controller to the status of an Eviction. A person with
// kubectl is none.
func Foreign(e *lifecyclev1alpha1.Eviction, ours string) (found Evidence) {
	for _, entry := range e.ManagedFields {
		if entry.Subresource != "status" || entry.Manager == ours || strings.HasPrefix(entry.Manager, "kubectl") || entry.FieldsV1 == nil || entry.Time == nil {
			continue
		}
		var fields struct {
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue // The API server has written it; it cannot be.
		}
		for _, field := range owned {
			if _, writes := fields.Status[field]; writes && !entry.Time.Time.Before(found.At) {
				found = Evidence{Manager: entry.Manager, Eviction: e.Namespace + "/" + e.Name, At: entry.Time.Time, Running: !hasEnded(e)}
			}
		}
	}
	return found
}

func hasEnded(e *lifecyclev1alpha1.Eviction) bool {
	for _, kind := range []lifecyclev1alpha1.EvictionConditionType{lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionTargetEvicted} {
		if c := meta.FindStatusCondition(e.Status.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionTrue {
			return true
		}
	}
	return false
}
