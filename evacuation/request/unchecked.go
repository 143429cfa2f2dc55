package request

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// While no manager runs, the times of a report are not checked, because the webhook is
// bypassed. (The chart's policies still check who may report.) So a completion that
// exists when we first see a request is checked against its managedFields, in which the
// API server records who wrote it, and when. What they do not confirm is not undone,
// because completionTime is final, but recorded.

// unchecked says why a completion that a decision relies on is not confirmed: the
// interceptor's name and the reason, both "" if it is.
func unchecked(er *v1alpha1.EvictionRequest, d process.Decision, seen observation, skew time.Duration) (name, why string) {
	i := slices.IndexFunc(d.Transitions, func(t process.Transition) bool { return t.From == process.Active && t.To == process.Completed })
	if i < 0 || d.Transitions[i].Name != seen.foundCompleted {
		return "", "" // It came while we, and so the webhook, were running.
	}
	name = seen.foundCompleted
	report := v1alpha1.ReportOf(er, name)
	if name == v1alpha1.ImperativeEvictionInterceptor || report.SkippedBy != "" {
		return "", ""
	}
	if why := unvouched(er.ManagedFields, report, skew); why != "" {
		return name, why
	}
	return "", ""
}

// unvouched says what the managedFields do not confirm about a completion, "" if they
// confirm it.
func unvouched(fields []metav1.ManagedFieldsEntry, report v1alpha1.InterceptorStatus, skew time.Duration) string {
	completed := writersOf(fields, report.Name, "f:completionTime")
	began := writersOf(fields, report.Name, "f:startTime")
	if len(completed) == 0 {
		return "it is not known who wrote it"
	}
	why := ""
	for _, entry := range completed {
		switch off := entry.Time.Sub(report.CompletionTime.Time).Abs(); {
		case off > skew+time.Second: // The API keeps whole seconds.
			why = fmt.Sprintf("it says %s, but was written at %s", stamp(report.CompletionTime), stamp(entry.Time))
		case report.StartTime != nil && !slices.ContainsFunc(began, func(e *metav1.ManagedFieldsEntry) bool { return e.Manager == entry.Manager }):
			why = fmt.Sprintf("field manager %q wrote it, which did not begin the work", entry.Manager)
		default:
			return ""
		}
	}
	return why
}

// writersOf returns the entries of the owners of a field of an interceptor's report, with
// the time of the write.
func writersOf(fields []metav1.ManagedFieldsEntry, interceptor, field string) (found []*metav1.ManagedFieldsEntry) {
	key := fmt.Sprintf(`k:{"name":%q}`, interceptor)
	for i := range fields {
		entry := &fields[i]
		if entry.Subresource != "status" || entry.FieldsV1 == nil || entry.Time == nil {
			continue
		}
		var tree struct {
			Status struct {
				Interceptors map[string]map[string]json.RawMessage `json:"f:interceptors"`
			} `json:"f:status"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree); err != nil {
			continue // Its writer confirms nothing.
		}
		if _, ok := tree.Status.Interceptors[key][field]; ok {
			found = append(found, entry)
		}
	}
	return found
}

// noteUnchecked records in the request itself that a completion is not confirmed.
func noteUnchecked(er *v1alpha1.EvictionRequest, name, why string, now time.Time) {
	er.Status.Conditions = withRoom(er.Status.Conditions)
	meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionUnchecked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNobodyChecked,
		ObservedGeneration: er.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Message: fmt.Sprintf("The completion of %s was written while nobody checked it: %s.", name, why),
	})
}

func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }
