//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// finalist is the user behind the last drain.
const finalist = "finalist"

// finale drains a node once more, when everything was called off and has come to rest:
// those of its pods that nothing holds up.
func (r *run) finale(ctx context.Context) error {
	var apps []string
	for i := range r.history.Plan.Workloads {
		if w := &r.history.Plan.Workloads[i]; w.movable() {
			apps = append(apps, w.Name)
		}
	}
	f := &Finale{Node: r.busiest(apps)}
	r.world.tellf("finale: kubectl drains %s, of which it takes %v", f.Node, apps)
	if err := insist(ctx, "let requests go", r.letRequestsGo); err != nil {
		return err
	}
	held, err := r.halfEvicted(ctx)
	if err != nil {
		return err
	}
	// An application that surges would be passed over while it waits: no interceptor tells of
	// itself more than once a minute, and deadlines are shorter than that here.
	// And what was refused is tried again after a pause.
	held = max(held, r.resumption())
	if held > 0 && !rest(ctx, held) {
		return context.Cause(ctx)
	}
	draining, stop := context.WithCancel(ctx)
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() {
		r.whileItMay(draining)
		stop()
	})
	for again := true; again; again = !f.Ended && overloaded(f.Answer) && rest(draining, Step) {
		f.From = time.Now()
		result, err := r.world.Cluster.Kubectl(draining, cluster.KubectlOptions{User: finalist, Groups: []string{group}},
			"drain", f.Node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", fmt.Sprintf("--pod-selector=%s in (%s)", builder.AppLabel, strings.Join(apps, ",")))
		f.To, f.Ended, f.Answer = time.Now(), err == nil && result.ExitCode == 0, lastLine(result.Stdout, result.Stderr)
		r.world.tellf("end of a drain in the finale: %t, %s", f.Ended, f.Answer)
	}
	stop()
	watching.Wait()
	r.history.Finale = f
	resting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	r.comeToRest(resting, nil)
	return r.lookAround(ctx)
}

// whileItMay returns when the drain of the finale has had its time, or ctx ends. Half-way it looks
// at the budgets: a pod that comes back under its name before the disruption controller has seen it
// gone counts as one that is about to go, and that is waited for.
func (r *run) whileItMay(ctx context.Context) {
	if !rest(ctx, r.patience/2) {
		return
	}
	held, err := r.halfEvicted(ctx)
	if err != nil && ctx.Err() == nil {
		r.world.tellf("budgets in the finale: %v", err)
	}
	rest(ctx, r.patience/2+held+r.history.Plan.consentTime())
}

// forgetAfter is how long a budget counts an eviction for which the pod was not deleted
// (kubernetes: pkg/controller/disruption, DeletionTimeout), and some seconds.
const forgetAfter = 2*time.Minute + 10*time.Second

// halfEvicted is for how long budgets will still count evictions that were begun and not
// ended: the API server counts before it deletes, and does not delete if whoever called was
// killed in between. Nobody but the disruption controller may take that back.
func (r *run) halfEvicted(ctx context.Context) (time.Duration, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := insist(ctx, "list budgets", func(ctx context.Context) error {
		return r.world.admin.List(ctx, budgets, client.InNamespace(r.namespace))
	}); err != nil {
		return 0, err
	}
	var longest time.Duration
	for i := range budgets.Items {
		for pod, since := range budgets.Items[i].Status.DisruptedPods {
			longest = max(longest, time.Until(since.Add(forgetAfter)))
			r.world.tellf("budget %s counts an eviction of %s from %s, which did not end", budgets.Items[i].Name, pod, since.Format(time.TimeOnly))
		}
	}
	return longest, nil
}

// overloaded reports whether kubectl gave up because somebody did not answer in time, which
// only says that the machine has too much to do: nothing else is broken in the finale. It
// is begun again then, as people do.
func overloaded(answer string) bool {
	return slices.ContainsFunc([]string{"context deadline exceeded", "Client.Timeout exceeded", "request timed out", "Handler timeout", "unable to return a response in the time"},
		func(sign string) bool { return strings.Contains(answer, sign) })
}

// movable reports whether nothing in the plan holds the pods up for good.
func (w *Workload) movable() bool {
	switch w.Kind {
	case Surging, Singleton:
		return true
	case Machines:
		return w.MaxUnavailable != 0 && w.Interceptors[0].Habit != Hangs
	default:
		return w.MaxUnavailable != 0
	}
}

// busiest is the node of pods that come back to it, if there are some, or the one with most
// pods of these applications.
func (r *run) busiest(apps []string) string {
	for i := range r.history.Plan.Workloads {
		w := &r.history.Plan.Workloads[i]
		if w.Pinned {
			return r.nodes[w.Node]
		}
		for _, node := range r.nodes {
			if w.Tolerates && slices.ContainsFunc(r.observer.podsOn(node), func(pod *corev1.Pod) bool { return pod.Labels[builder.AppLabel] == w.Name }) {
				return node
			}
		}
	}
	count := func(node string) int {
		n := 0
		for _, pod := range r.observer.podsOn(node) {
			if slices.Contains(apps, pod.Labels[builder.AppLabel]) {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(r.nodes, func(a, b string) int { return count(a) - count(b) })
}

// lastLine is the last one that says something.
func lastLine(texts ...string) string {
	lines := strings.Split(strings.TrimSpace(strings.Join(texts, "\n")), "\n")
	return lines[len(lines)-1]
}
