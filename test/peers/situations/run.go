//go:build unix

package situations

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
)

// again is how many pods of one name have to be evicted to show that this continues.
const again = 3

// run is a situation that is played.
type run struct {
	*testing.T
	suite *Suite
	situation
	place   Place
	mark    cluster.Mark
	history *history
	// subject is the pod that it is about, neighbor the plain one beside it.
	subject, neighbor *corev1.Pod
}

// play plays a situation, and tells what happened.
func (s *Suite) play(t *testing.T, one situation) *records.Result {
	t.Helper()
	if one.without == abandoned && s.NeverCallsOff != "" {
		return &records.Result{Impossible: s.NeverCallsOff}
	}
	r := &run{T: t, suite: s, situation: one, place: s.Drainer.Place(t)}
	r.history = follow(t, s.Kube, r.place.Namespace)
	r.neighbor = r.pod(neighborName)
	r.subject = r.situation.create(r)
	if r.subject.Spec.NodeName != r.neighbor.Spec.NodeName {
		t.Fatalf("the pods are on %s and %s, and not on the same node", r.subject.Spec.NodeName, r.neighbor.Spec.NodeName)
	}
	r.mark = s.Kube.RequestLog().Mark()
	s.Drainer.Drain(t, r.node())
	if s.Declines != nil && (one.held || one.name == tolerates) { // The latter has nowhere else to go.
		r.wait(declined)
		return r.result()
	}
	if one.middle != nil {
		r.waitMiddle()
		one.middle(r)
	}
	end := one.without
	if s.installation != nil {
		end = one.with
	}
	switch {
	case one.name == tolerates && s.LeavesTolerant:
		end = untouched
	case one.name == single && s.Surges:
		end = goes
	}
	r.wait(end)
	return r.result()
}

func (r *run) node() string { return r.neighbor.Spec.NodeName }

// intercepted makes a pod one with the interceptor of the situation.
func (r *run) intercepted(w *builder.PodWrapper) {
	if r.needs > 0 {
		w.Interceptors(interceptorName(r.needs))
	}
}

// placed lets a pod run on the nodes of the test, on that of the plain pod at first: the
// scheduler prefers it.
func (r *run) placed(w *builder.PodWrapper) {
	for key, value := range r.place.Selector {
		w.NodeSelector(key, value)
	}
	if r.place.Change != nil {
		r.place.Change(w)
	}
	if r.neighbor == nil {
		return
	}
	w.Change(func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{r.neighbor.Spec.NodeName},
				}},
			}}},
		}}
	})
}

func (r *run) create(objects ...client.Object) {
	r.Helper()
	cluster.Create(r, r.suite.client, objects...)
}

// pod creates a pod, and waits until it is Ready.
func (r *run) pod(name string, more ...func(*builder.PodWrapper)) *corev1.Pod {
	r.Helper()
	w := builder.Pod(r.place.Namespace, name)
	r.placed(w)
	for _, change := range more {
		change(w)
	}
	r.create(w.Obj())
	return r.ready(name)
}

// ready waits for a pod whose name begins so, and that is Ready.
func (r *run) ready(prefix string) *corev1.Pod {
	r.Helper()
	var found *corev1.Pod
	cluster.Eventually(r, "pod "+prefix+" of "+r.place.Namespace+" to be Ready", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := r.suite.client.List(ctx, list, client.InNamespace(r.place.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; strings.HasPrefix(pod.Name, prefix) {
				if !cluster.IsReady(pod) {
					return fmt.Errorf("%s is %s on node %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
				}
				found = pod
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

// waitMiddle waits until Drawbridge has given the interceptor its turn, or until the program has
// called for the pod.
func (r *run) waitMiddle() {
	r.Helper()
	if r.suite.installation != nil {
		cluster.WaitRequest(r, r.suite.client, r.subject, "turn", cluster.ActiveIs(interceptorName(r.needs)))
		return
	}
	cluster.Eventually(r, "a call for "+r.subject.Name, func(ctx context.Context) error {
		if calls, err := r.calls(ctx); err != nil || len(calls) > 0 {
			return err
		}
		return errors.New("there is none")
	})
}

// calls are the evictions and deletions of pods of that name.
func (r *run) calls(ctx context.Context) (cluster.Requests, error) {
	return peer.Calls(ctx, r.suite.Kube.RequestLog(), r.mark, r.subject)
}

// refusals are how often the program was refused the pod so far.
func (r *run) refusals(ctx context.Context) (int, error) {
	calls, err := r.calls(ctx)
	refused := calls.By(r.suite.User).Where(func(c cluster.Request) bool { return c.Code == http.StatusTooManyRequests })
	return len(refused), err
}

// gaveUp says whether the program has ended with an error, if it may.
func (r *run) gaveUp() bool { return r.suite.GivesUp != nil && r.suite.GivesUp(r.node()) }

// wait waits for the end.
func (r *run) wait(end end) {
	r.Helper()
	lives := func() bool { return len(r.history.went(r.subject.Name)) == 0 }
	cluster.Eventually(r, "the end of pod "+r.subject.Name+" in "+r.place.Namespace, func(ctx context.Context) error {
		refused, err := r.refusals(ctx)
		if err != nil {
			return err
		}
		if end != goes && !lives() {
			return waiting.InVain(errors.New("it is gone, and was to stay"))
		}
		switch {
		case end == goes && lives():
			return fmt.Errorf("it lives, refused %d times", refused)
		case end == goes:
			ended, says := r.suite.Drainer.Ended(ctx, r.node())
			if went := len(r.history.went(r.subject.Name)); !ended && !r.gaveUp() && went < again {
				return fmt.Errorf("%d of its name are gone, but the program is not done: %s", went, says)
			}
		case end == declined && !r.suite.Declines(r.node()):
			_, says := r.suite.Drainer.Ended(ctx, r.node())
			return fmt.Errorf("the program has not declined: %s", says)
		case end == untouched:
			ended, says := r.suite.Drainer.Ended(ctx, r.node())
			if neighbor := len(r.history.went(neighborName)); !ended || neighbor == 0 {
				return fmt.Errorf("the plain pod is gone: %t; the program is not done: %s", neighbor > 0, says)
			}
		case end == stays && refused < r.suite.Enough:
			return fmt.Errorf("refused %d times so far", refused)
		case end == abandoned && r.suite.installation != nil && !r.suite.workers[r.needs].WasCanceled(r.subject.UID):
			return errors.New("its interceptor works")
		}
		return nil
	})
}

// result tells what happened.
func (r *run) result() *records.Result {
	r.Helper()
	ctx := r.Context()
	calls, err := r.calls(ctx)
	if err != nil {
		r.Fatal(err)
	}
	refused, err := r.refusals(ctx)
	if err != nil {
		r.Fatal(err)
	}
	result := &records.Result{Order: []string{}, Refused: refused > 0}
	for _, name := range r.history.order() {
		part := map[string]string{r.subject.Name: records.Subject, neighborName: records.Neighbor}[name]
		if part != "" && !slices.Contains(result.Order, part) {
			result.Order = append(result.Order, part)
		}
	}
	went := len(r.history.went(r.subject.Name))
	evictions := calls.Where(func(c cluster.Request) bool { return c.Subresource == "eviction" && c.Code == http.StatusCreated })
	// An eviction that is repeated while the pod ends is answered in the same way.
	result.Evicted = min(went, len(evictions))
	result.Deleted = went - result.Evicted
	result.Replaced = went > 0 && r.history.replaced(r.subject)
	if w := r.suite.workers[r.needs]; w != nil {
		done, gone := w.DoneWith(r.subject.UID), r.history.end(r.subject.UID)
		result.Prepared = !done.IsZero() && !gone.IsZero() && done.Before(gone)
		result.Canceled = w.WasCanceled(r.subject.UID)
	}
	result.Ended, _ = r.suite.Drainer.Ended(ctx, r.node())
	result.GaveUp = went > 0 && r.gaveUp()
	says, err := r.suite.Drainer.Says(ctx, r.node())
	if err != nil {
		r.Fatal(err)
	}
	names := strings.NewReplacer(r.node(), "NODE", r.subject.Name, "POD", r.place.Namespace, "NAMESPACE", neighborName, "NEIGHBOR")
	for _, s := range says {
		if s = names.Replace(s); !slices.Contains(result.Says, s) {
			result.Says = append(result.Says, s)
		}
	}
	r.Logf("%s\n%s", result, calls)
	if broken := broken(r.situation, result); r.suite.installation != nil && broken != "" {
		r.Error(broken)
	}
	return result
}
