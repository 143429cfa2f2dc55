package grant

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// ownLabels differ between the pods of one owner; all others come from its template.
var ownLabels = []string{appsv1.PodIndexLabel, appsv1.StatefulSetPodNameLabel, batchv1.JobCompletionIndexAnnotation}

// RulesOf reads the rules of a budget and its selector, but for its conditions. What cannot be
// read is in problems: the rules say that they are refused then, and a selector that cannot be
// read selects nothing.
func RulesOf(spec *v1alpha1.EvictionBudgetSpec) (r Rules, selector labels.Selector, problems []error) {
	r = Rules{
		Grouped: spec.GroupBy != nil, MaxGroups: 1, MaxUnavailable: intstr.FromInt32(1),
		Settle: durationOf(spec.Settle), MinInterval: durationOf(spec.MinInterval), Continue: spec.OutsideWindow == v1alpha1.OutsideWindowContinue,
	}
	if spec.GroupBy != nil {
		r.Spread = spec.GroupBy.NodeLabel != "" || slices.Contains(ownLabels, spec.GroupBy.PodLabel)
	}
	if spec.MaxGroups != nil {
		r.MaxGroups = int(*spec.MaxGroups)
	}
	if spec.MaxUnavailable != nil {
		r.MaxUnavailable = *spec.MaxUnavailable
	}
	refuse := func(reason string, err error) {
		if r.Refused == "" {
			r.Refused = reason
		}
		problems = append(problems, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		selector = labels.Nothing()
		refuse(v1alpha1.ReasonInvalidSelector, fmt.Errorf("spec.selector cannot be read: %w", err))
	}
	for i, w := range spec.Windows {
		window, err := ParseWindow(w.Schedule, w.TimeZone, w.Duration.Duration)
		if err != nil {
			refuse(v1alpha1.ReasonInvalidWindow, fmt.Errorf("spec.windows[%d]: %w", i, err))
			continue
		}
		r.Windows = append(r.Windows, window)
	}
	return r, selector, problems
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
