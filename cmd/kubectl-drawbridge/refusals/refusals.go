// Package refusals tells which writes of Drawbridge the cluster refuses: from the events of
// a pod, and by dry runs of the same writes.
package refusals

import (
	"fmt"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// Refusal is a write of Drawbridge that the cluster refuses.
type Refusal struct {
	Write refused.Write
	Cause refused.Cause
	// Words are the server's.
	Words string
	// Time of the event; zero for a dry run.
	Time time.Time
}

// Of are the refusals that last, as the events of one object and its request say: for each
// write the newest event decides. when says when an event was last seen.
func Of(all []eventsv1.Event, when func(*eventsv1.Event) time.Time) []Refusal {
	newest := map[refused.Write]*eventsv1.Event{}
	for i := range all {
		event := &all[i]
		write, ok := refused.ByAction(event.Action)
		if _, told := causeOf(event); !ok || !told && event.Reason != events.ReasonWriteAccepted {
			continue
		}
		// One that is over is told after the refusal, perhaps within the same second.
		if known := newest[write]; known == nil || when(event).After(when(known)) || when(event).Equal(when(known)) && event.Reason == events.ReasonWriteAccepted {
			newest[write] = event
		}
	}
	var found []Refusal
	for _, write := range refused.Writes() {
		event := newest[write]
		if event == nil || event.Reason == events.ReasonWriteAccepted {
			continue
		}
		cause, _ := causeOf(event)
		found = append(found, Refusal{Write: write, Cause: cause, Words: text.Clean(events.RefusedWords(write.Doing(), event.Note)), Time: when(event)})
	}
	return found
}

func causeOf(event *eventsv1.Event) (refused.Cause, bool) {
	name, ok := strings.CutPrefix(event.Reason, events.ReasonRefusedBy)
	cause := refused.Cause(name)
	return cause, ok && slices.Contains(refused.Causes(), cause)
}

// Said says in a sentence what cannot be done, what refuses it, and the server's words.
func (r Refusal) Said(namespace string) string {
	return fmt.Sprintf("Drawbridge cannot %s: %s refuses it: %s.", r.Write.Doing(), r.Cause.Who(namespace), strings.TrimSuffix(r.Words, "."))
}

// Remedy says what to change.
func (r Refusal) Remedy(namespace string) string {
	where := ""
	if namespace != "" {
		where = " -n " + namespace
	}
	switch r.Cause {
	case refused.Quota:
		return "Raise the quota, or remove the limit: kubectl get resourcequotas" + where
	case refused.Policy:
		return "Change the policy that the message names, or exempt Drawbridge's account from it."
	case refused.Webhook:
		return "Repair the admission webhook that the message names, or exempt Drawbridge's account from it."
	case refused.Forbidden:
		return "Give Drawbridge's account the permission; kubectl drawbridge doctor lists those that are missing."
	case refused.Invalid:
		return "See whether the CustomResourceDefinitions are of Drawbridge's release: kubectl drawbridge doctor"
	case refused.TooLarge:
		return "Make the object smaller: it has grown over the limit of the API server or of etcd."
	case refused.NamespaceTerminating:
		return "Nothing: what is in the namespace goes with it."
	default:
		return "Change what the message names."
	}
}
