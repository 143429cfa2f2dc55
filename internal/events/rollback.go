package events

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
)

// Reporter is the reportingController of all our events.
const Reporter = "drawbridge"

// ReasonStoreRolledBack is the reason of the event before the manager ends.
const ReasonStoreRolledBack = "StoreRolledBack"

// actionRestart is its action.
const actionRestart = "Restart"

// StoreRolledBack says that the manager ends, to begin again with what the API server has
// now.
func StoreRolledBack(resource, seen, live string) Event {
	return warning(ReasonStoreRolledBack, actionRestart, "The API server went back in time: the list of %s is at resource version %s, and %s was seen before. Was etcd restored? "+
		"Drawbridge restarts to read everything again. Other controllers may need a restart, too.", resource, live, seen)
}

// Write writes an event and waits for it, for those who end afterwards. The object must have
// a namespace. The error is that of the API server.
func Write(ctx context.Context, client eventsclient.EventsV1Interface, now time.Time, regarding *corev1.ObjectReference, e Event) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: regarding.Namespace, Name: fmt.Sprintf("%s.%x", cmp.Or(regarding.Name, Reporter), now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: Reporter, ReportingInstance: Reporter + "-" + host,
		Type: e.Type, Reason: e.Reason, Action: e.Action, Note: truncate(e.Note), Regarding: *regarding,
	}
	if _, err := client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write event %s: %w", e.Reason, err)
	}
	return nil
}
