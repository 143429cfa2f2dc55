package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// canceledBecause is the condition Canceled, if it is True.
func (c *podCase) canceledBecause() *metav1.Condition {
	if c.Request == nil || !meta.IsStatusConditionTrue(c.Request.Status.Conditions, v1alpha1.ConditionCanceled) {
		return nil
	}
	return meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionCanceled)
}

// requesters returns the request's requesters, with data of their leases.
func requesters(f *Facts) []Requester {
	leases := map[string]string{}
	if f.Request != nil {
		for _, r := range f.Request.Spec.Requesters {
			leases[r.Name] = r.LeaseName
		}
	}
	var found []Requester
	for _, name := range turns.Requesters(f.Request, f.Eviction) {
		who := Requester{Name: name}
		if _, ours := leases[name]; !ours {
			who.Who = "by Kubernetes' own API"
		}
		if lease, ok := f.Leases[leases[name]]; ok && leases[name] != "" {
			who.Who = fmt.Sprintf("%s, last heard %s ago; gives up when silent for %s", lease.Display, duration.HumanDuration(f.Now.Sub(lease.RenewedAt)), duration.HumanDuration(lease.TTL))
		}
		found = append(found, who)
	}
	return found
}

// toldByRequest are the events whose content is also in the request, with times that do
// not expire.
var toldByRequest = []string{events.ReasonInterceptorActivated, events.ReasonInterceptorCompleted, events.ReasonEvicted, events.ReasonCanceled,
	events.ReasonEvacuationStarted, events.ReasonEvacuationCompleted, events.ReasonInterceptorSkipped}

// history merges what the request and the events say, by time, without duplicates.
func history(f *Facts) []Entry {
	var entries []Entry
	add := func(t *time.Time, format string, args ...any) {
		if t != nil && !t.IsZero() {
			entries = append(entries, Entry{Time: t.In(f.Now.Location()), Text: fmt.Sprintf(format, args...)})
		}
	}
	if er := f.Request; er != nil {
		add(&er.CreationTimestamp.Time, "eviction requested")
		for _, i := range er.Status.Interceptors {
			add(at(i.StartTime), "%s began", i.Name)
			if i.SkippedBy != "" {
				add(at(i.CompletionTime), "%s skipped %s%s", i.SkippedBy, i.Name, quoted(i.Message))
			} else {
				add(at(i.CompletionTime), "%s is done%s", i.Name, quoted(i.Message))
			}
		}
		if len(er.Status.ActiveInterceptors) > 0 {
			add(at(er.Status.ActivationTime), "turn of %s", er.Status.ActiveInterceptors[0])
		}
		for _, kind := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
			if condition := meta.FindStatusCondition(er.Status.Conditions, kind); condition != nil && condition.Status == metav1.ConditionTrue {
				add(&condition.LastTransitionTime.Time, "request ended: %s (%s)", kind, condition.Reason)
			}
		}
	}
	for i := range f.Events {
		event := &f.Events[i]
		if f.Request != nil && slices.Contains(toldByRequest, event.Reason) {
			continue
		}
		when := eventTime(event)
		add(&when, "%s: %s", event.Reason, text.Clean(event.Note)+times(event))
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	// The same is recorded on the pod and on its request.
	return slices.CompactFunc(entries, func(a, b Entry) bool { return a.Text == b.Text })
}

func quoted(message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return ""
	}
	return fmt.Sprintf(": %q", message)
}

func times(event *eventsv1.Event) string {
	if event.Series == nil || event.Series.Count < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", event.Series.Count)
}

// eventTime is when an event was last seen.
func eventTime(event *eventsv1.Event) time.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return event.Series.LastObservedTime.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	case !event.DeprecatedLastTimestamp.IsZero():
		return event.DeprecatedLastTimestamp.Time
	default:
		return event.CreationTimestamp.Time
	}
}
