package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// gatherer reads the facts of a story.
type gatherer struct {
	*cli.Options
	*cli.Connection
}

// Gather reads all facts about a pod of the connection's namespace. Only the pod and the
// requests must be readable.
func Gather(ctx context.Context, o *cli.Options, c *cli.Connection, pod string) (*Facts, error) {
	return gatherer{o, c}.gather(ctx, pod)
}

// gather reads all facts about a pod. Only the pod and the requests must be readable.
func (g gatherer) gather(ctx context.Context, name string) (*Facts, error) {
	f := &Facts{System: g.System}
	pod := &corev1.Pod{}
	err := g.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return g.gatherGone(ctx, name, err)
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	f.Pod = pod
	er := &v1alpha1.EvictionRequest{}
	switch err := g.Get(ctx, v1alpha1.RequestKey(pod), er); {
	case err == nil:
		f.Request = er
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get the request for pod %s: %w", name, err)
	}

	var registrations v1alpha1.EvictionInterceptorList
	if read(f, "evictioninterceptors", g.List(ctx, &registrations)) {
		f.Registrations = registrations.Items
	}
	if hooks, err := g.Hooks(ctx, client.InNamespace(pod.Namespace)); read(f, "evacuationhooks", err) {
		f.Hooks = hooks
	}
	if budgets, err := g.EvictionBudgets(ctx, client.InNamespace(pod.Namespace)); read(f, "evictionbudgets", err) {
		f.EvictionBudgets = budgets
	}
	if len(f.EvictionBudgets) > 0 || len(pod.Spec.EvictionResponders) > 0 {
		installed := g.Installed(ctx, g.Connection)
		f.BudgetsOff, f.Native = installed.BudgetsOff, installed.Native
	}
	g.gatherEviction(ctx, f, pod.UID)
	namespace := &corev1.Namespace{}
	if read(f, "the namespace, so registrations that select by its labels are not known", g.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)) {
		f.Namespace = namespace
	}
	var budgets policyv1.PodDisruptionBudgetList
	if read(f, "poddisruptionbudgets", g.List(ctx, &budgets, client.InNamespace(pod.Namespace))) {
		f.Budgets = budgets.Items
		g.gatherPeers(ctx, f)
	}
	if pod.Spec.PriorityClassName != "" {
		class := &schedulingv1.PriorityClass{}
		// It matters to few pods, so a failed read is not mentioned.
		if err := g.Get(ctx, client.ObjectKey{Name: pod.Spec.PriorityClassName}, class); err == nil {
			f.Class = class
		}
	}
	if pod.Spec.NodeName != "" {
		node := &corev1.Node{}
		if read(f, "the node", g.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)) {
			f.Node = node
		}
	}
	g.gatherMaintenances(ctx, f)
	g.gatherHistory(ctx, f)
	g.gatherUnavailable(ctx, f)
	f.DryRun = TryEviction(ctx, g.Connection, pod, len(BudgetsOf(pod, f.Budgets, nil)))
	f.Now = g.Clock.Now()
	if needsRequestDryRun(*f) {
		// What the user may not do is unknown, and the events say the rest.
		refusal, err := refusals.TryRequest(ctx, g.Connection, pod)
		f.RequestDryRun, f.RequestTried = refusal, err == nil
		g.TakeWarnings()
	}
	if needsWebhook(*f) {
		f.Webhook = g.gatherWebhook(ctx, f)
	}
	return f, nil
}

// gatherEviction finds the native Eviction of the pod of that UID.
func (g gatherer) gatherEviction(ctx context.Context, f *Facts, pod types.UID) {
	list, err := g.NativeEvictions(ctx, g.Connection, client.InNamespace(g.Namespace))
	if !read(f, "the native Evictions, so which native responder has its turn is not known", err) {
		return
	}
	f.Eviction = turns.ByPod(turns.Pointers(list))[pod]
}

// gatherPeers reads the pods that the pod's budget selects: its status may be old. Of several
// budgets nothing needs to be counted.
func (g gatherer) gatherPeers(ctx context.Context, f *Facts) {
	all := slices.DeleteFunc(BudgetsOf(f.Pod, f.Budgets, nil), func(b Budget) bool { return b.Guard })
	if len(all) != 1 {
		return
	}
	i := slices.IndexFunc(f.Budgets, func(b policyv1.PodDisruptionBudget) bool { return b.Name == all[0].Name })
	selector, err := metav1.LabelSelectorAsSelector(f.Budgets[i].Spec.Selector)
	if err != nil {
		return // Then it would not select the pod.
	}
	var pods corev1.PodList
	if read(f, "the other pods, so what the budget counts is taken from its status", g.List(ctx, &pods, client.InNamespace(f.Pod.Namespace), client.MatchingLabelsSelector{Selector: selector})) {
		for i := range pods.Items {
			f.Peers = append(f.Peers, &pods.Items[i])
		}
	}
}

// gatherMaintenances reads the maintenances that the pod's node is under.
func (g gatherer) gatherMaintenances(ctx context.Context, f *Facts) {
	if f.Node == nil || f.Node.Annotations[v1alpha1.MaintenancesAnnotation] == "" {
		return
	}
	for item := range strings.SplitSeq(f.Node.Annotations[v1alpha1.MaintenancesAnnotation], ",") {
		name, _, _ := strings.Cut(item, "=")
		m := &v1alpha1.NodeMaintenance{}
		err := g.Get(ctx, client.ObjectKey{Name: name}, m)
		if !apierrors.IsNotFound(err) && read(f, "nodemaintenance "+name, err) {
			f.Maintenances = append(f.Maintenances, *m)
		}
	}
	f.Wait = g.Installed(ctx, g.Connection).Wait
}

// gatherGone looks for the last request about a pod that does not exist.
func (g gatherer) gatherGone(ctx context.Context, name string, notFound error) (*Facts, error) {
	var list v1alpha1.EvictionRequestList
	if err := g.List(ctx, &list, client.InNamespace(g.Namespace)); err != nil {
		return nil, fmt.Errorf("list evictionrequests: %w", err)
	}
	f := &Facts{System: g.System}
	for i := range list.Items {
		er := &list.Items[i]
		if er.Spec.Target.Pod == nil || er.Spec.Target.Pod.Name != name {
			continue
		}
		if f.Request == nil || f.Request.CreationTimestamp.Before(&er.CreationTimestamp) {
			f.Request = er
		}
	}
	if f.Request == nil {
		return nil, errors.Join(fmt.Errorf("there is no pod %q in namespace %q, and nothing is known of its eviction: see --namespace", name, g.Namespace), onlyUnexpected(notFound))
	}
	g.gatherEviction(ctx, f, f.Request.Spec.Target.Pod.UID)
	g.gatherHistory(ctx, f)
	f.Now = g.Clock.Now()
	return f, nil
}

// onlyUnexpected drops errors that are reported in better words.
func onlyUnexpected(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// read notes what could not be read.
func read(f *Facts, what string, err error) bool {
	if err != nil {
		f.Unread = append(f.Unread, what+" ("+err.Error()+")")
	}
	return err == nil
}

// gatherHistory reads the events and the leases of the requesters.
func (g gatherer) gatherHistory(ctx context.Context, f *Facts) {
	var about []string
	if f.Pod != nil {
		about = append(about, string(f.Pod.UID))
	}
	if f.Request != nil {
		about = append(about, string(f.Request.UID))
	}
	for _, uid := range about {
		var events corev1.EventList
		if !read(f, "events", g.List(ctx, &events, client.InNamespace(g.Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", uid)})) {
			break
		}
		for i := range events.Items {
			if event := &events.Items[i]; strings.HasPrefix(event.ReportingController, "drawbridge") || event.InvolvedObject.Kind == "EvictionRequest" {
				f.Events = append(f.Events, eventOf(event))
			}
		}
	}
	if f.Request == nil {
		return
	}
	f.Leases = map[string]translate.LeaseRecord{}
	for _, r := range f.Request.Spec.Requesters {
		if r.LeaseName == "" {
			continue
		}
		lease := &coordinationv1.Lease{}
		// Who drains is a detail, so a failed read is not mentioned.
		if err := g.Get(ctx, client.ObjectKey{Namespace: g.System, Name: r.LeaseName}, lease); err != nil {
			continue
		}
		if record, err := translate.DecodeLease(lease); err == nil {
			f.Leases[r.LeaseName] = record
		}
	}
}

// eventOf converts a core event to one of events.k8s.io. Only core events can be listed
// by object.
func eventOf(e *corev1.Event) eventsv1.Event {
	event := eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Type: e.Type, Reason: e.Reason, Action: e.Action, Note: e.Message,
		DeprecatedLastTimestamp: e.LastTimestamp,
	}
	if e.Series != nil {
		event.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return event
}

// TryEviction makes a dry run of an eviction by name, as drains do. budgets is how many
// budgets select the pod. The dry run is set in both places: webhooks read one of them,
// the handler the other.
func TryEviction(ctx context.Context, c *cli.Connection, pod *corev1.Pod, budgets int) *DryRun {
	c.TakeWarnings()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}
	err := c.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction, client.DryRunAll)
	got := answer.Classify(err, budgets)
	warned := c.TakeWarnings()
	slices.Sort(warned)
	return &DryRun{Result: got.Result, Detail: got.Detail, Warnings: warned}
}
