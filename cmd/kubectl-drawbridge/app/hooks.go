package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/hookstest"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

func newHooks(o commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hooks [NAME]",
		Aliases: []string{"hook"},
		Short:   "List the EvacuationHooks, or the pods that one covers",
		Long: `List the EvacuationHooks of a namespace: what they do, how many pods they cover, and
for how many pods they run or hold the eviction.

With a name: the pods that this hook covers now, and its progress with each.

hooks test runs a hook for a pod, without an eviction, and hooks retry lets one that has
failed try again.`,
		Example: `  kubectl drawbridge hooks -A
  kubectl drawbridge hooks dump -n shop
  kubectl drawbridge hooks test dump --pod=ledger-0 -n shop`,
		ValidArgsFunction: o.CompleteFirst(cli.HookResource),
	}
	o.ofNamespace(cmd, "hook", o.hookPods, o.hooks)
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
	cmd.AddCommand(hookstest.NewCommand(o.Options, o.CompleteFirst(cli.HookResource)), newHooksRetry(o))
	return cmd
}

func (o commands) hooks(ctx context.Context, c *cli.Connection, namespace string) error {
	found, err := c.Hooks(ctx, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	all := listing.Hooks(found)
	if o.Output == cli.FormatJSON || o.Output == cli.FormatYAML {
		return o.PrintValue(all)
	}
	return o.printHooks(all, namespace)
}

func (o commands) printHooks(all []listing.Hook, namespace string) error {
	if len(all) == 0 {
		return o.none("EvacuationHook", namespace)
	}
	wide := o.Output == cli.FormatWide
	t := cli.NewTable(o.Out)
	heading := []string{"NAMESPACE", "NAME", "ACTION", "PRIORITY", "PODS", "RUNNING", "HELD", "ON-FAILURE", "ACCEPTED", "LAST-RUN"}
	if wide {
		heading = append(heading, "GUARD", "DEADLINE", "RETRIES")
	}
	t.Row(heading...)
	for _, h := range all {
		row := []string{
			h.Namespace, h.Name, h.Action, number(h.Priority), numberIfKnown(h.Pods), strconv.Itoa(h.Running), strconv.Itoa(h.Held),
			h.OnFailure, cmp.Or(h.Accepted, "Unknown"), h.LastRun,
		}
		if wide {
			row = append(row, h.Guard, h.Deadline, numberIfKnown(h.Retries))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, h := range all {
		if h.Trouble != "" {
			fmt.Fprintf(o.Out, "\n%s/%s: %s\n", h.Namespace, h.Name, text.Clean(h.Trouble))
		}
	}
	return nil
}

func numberIfKnown(n *int32) string {
	if n == nil {
		return ""
	}
	return number(*n)
}

// hookPod is a pod that a hook covers.
type hookPod struct {
	Pod  string `json:"pod"`
	Node string `json:"node,omitempty"`
	// Phase and the rest are those of its run; empty if there is none.
	Phase   string     `json:"phase,omitempty"`
	Attempt int32      `json:"attempt,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Message string     `json:"message,omitempty"`
}

func (o commands) hookPods(ctx context.Context, c *cli.Connection, name string) error {
	hook := &v1alpha1.EvacuationHook{}
	if err := get(ctx, c, hook, "EvacuationHook", name); err != nil {
		return err
	}
	var known []corev1.Namespace
	namespace := &corev1.Namespace{}
	switch err := c.Get(ctx, client.ObjectKey{Name: c.Namespace}, namespace); {
	case err == nil:
		known = append(known, *namespace)
	case !apierrors.IsForbidden(err): // Few hooks read the namespace.
		return fmt.Errorf("get namespace %s: %w", c.Namespace, err)
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	covered, err := hookPodsOf(hook, known, list.Items, o.System)
	if err != nil {
		return err
	}
	if o.Output == cli.FormatJSON || o.Output == cli.FormatYAML {
		return o.PrintValue(covered)
	}
	return o.printHookPods(hook, covered)
}

// hookPodsOf are the pods that the hook covers, by name, as Drawbridge decides it.
func hookPodsOf(hook *v1alpha1.EvacuationHook, namespaces []corev1.Namespace, all []corev1.Pod, system string) ([]hookPod, error) {
	registry := registration.Static(registration.Options{Namespace: system}, registration.Known{
		Hooks: []v1alpha1.EvacuationHook{*hook}, Namespaces: namespaces,
	})
	name := v1alpha1.HookInterceptor(client.ObjectKeyFromObject(hook))
	covered := []hookPod{}
	for i := range all {
		pod := &all[i]
		if pods.HasEnded(pod) {
			continue
		}
		names, err := registry.Resolve(pod)
		if err != nil {
			return nil, fmt.Errorf("decide whether hook %s covers pod %s: %w", hook.Name, pod.Name, err)
		}
		if !slices.Contains(names, name) {
			continue
		}
		found := hookPod{Pod: pod.Name, Node: pod.Spec.NodeName}
		for _, run := range hook.Status.Runs {
			if run.Request == string(pod.UID) {
				found.Phase, found.Attempt, found.Since, found.Message = string(run.Phase), run.Attempt, new(run.StartTime.Time), run.Message
			}
		}
		covered = append(covered, found)
	}
	slices.SortFunc(covered, func(a, b hookPod) int { return strings.Compare(a.Pod, b.Pod) })
	return covered, nil
}

func (o commands) printHookPods(hook *v1alpha1.EvacuationHook, covered []hookPod) error {
	state := listing.HookOf(hook)
	if len(covered) == 0 {
		fmt.Fprintf(o.Out, "Hook %s covers no pod in namespace %s now.\n", hook.Name, hook.Namespace)
	} else {
		t := cli.NewTable(o.Out)
		t.Row("POD", "NODE", "PHASE", "ATTEMPT", "SINCE")
		for _, p := range covered {
			attempt, since := "", ""
			if p.Phase != "" {
				attempt, since = number(p.Attempt), cli.Age(o.Clock.Now(), *p.Since)
			}
			t.Row(p.Pod, p.Node, p.Phase, attempt, since)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, p := range covered {
		if p.Message != "" {
			fmt.Fprintf(o.Out, "\n%s: %s\n", p.Pod, text.Clean(p.Message))
		}
	}
	if state.Trouble != "" {
		fmt.Fprintf(o.Out, "\n%s/%s: %s\n", hook.Namespace, hook.Name, text.Clean(state.Trouble))
	}
	return nil
}
