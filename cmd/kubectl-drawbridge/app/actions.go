package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/drain"
)

// actionPatience bounds an action; the longest waits releasePatience for a node.
const actionPatience = 2 * time.Minute

// actions does for the dashboard what the commands do, with their own code.
type actions struct{ *cli.Options }

var _ act.Actions = actions{}

// newActions returns the actions of a dashboard.
func newActions(o *cli.Options) act.Actions { return actions{o} }

// one is a single call of an action.
type one struct {
	commands
	*cli.Connection
	values      url.Values
	out, errOut *bytes.Buffer
}

// begin prepares a call, whose output is kept.
func (a actions) begin(values url.Values) (one, error) {
	c, err := a.Connect() // Of its own, so that warnings of the API server are those of this call.
	if err != nil {
		return one{}, err
	}
	if namespace := values.Get("namespace"); namespace != "" {
		c.Namespace = namespace
	}
	o := *a.Options
	call := one{Connection: c, values: values, out: &bytes.Buffer{}, errOut: &bytes.Buffer{}}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: call.out, ErrOut: call.errOut}
	o.Output = ""
	call.commands = commands{&o}
	return call, nil
}

// lines of what was printed.
func lines(b *bytes.Buffer) []string {
	var all []string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, strings.TrimPrefix(line, "Warning: "))
		}
	}
	return all
}

// needed returns a value that the address or the form must have.
func (c one) needed(name string) (string, error) {
	if value := strings.TrimSpace(c.values.Get(name)); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("the address has no %q: go back, and follow the link again", name)
}

// verbs plan and do.
var verbs = map[string]struct {
	plan func(one, context.Context) (act.Plan, error)
	// do returns the command line that has done the same, if the form has changed it.
	do func(one, context.Context) (command string, err error)
}{
	"drain":    {one.planDrain, one.doDrain},
	"cancel":   {one.planCancel, one.doCancel},
	"uncordon": {one.planUncordon, one.doUncordon},
	"skip":     {one.planSkip, one.doSkip},
}

// Plan implements act.Actions.
func (a actions) Plan(ctx context.Context, verb string, values url.Values) (act.Plan, error) {
	v, ok := verbs[verb]
	if !ok {
		return act.Plan{}, act.ErrUnknown
	}
	call, err := a.begin(values)
	if err != nil {
		return act.Plan{}, err
	}
	p, err := v.plan(call, ctx)
	call.PrintWarnings(call.Connection)
	p.Lines = append(p.Lines, lines(call.errOut)...)
	return p, err
}

// Do implements act.Actions. It goes on when the browser leaves: half an action is worse.
func (a actions) Do(ctx context.Context, verb string, values url.Values) (act.Result, error) {
	v, ok := verbs[verb]
	if !ok {
		return act.Result{}, act.ErrUnknown
	}
	call, err := a.begin(values)
	if err != nil {
		return act.Result{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionPatience)
	defer cancel()
	command := ""
	err = cli.OnLatest(func() (err error) {
		command, err = v.do(call, ctx)
		return err
	})
	call.PrintWarnings(call.Connection)
	return act.Result{Lines: lines(call.out), Warnings: lines(call.errOut), Command: command}, explained(err)
}

// explained is the error as the command line would print it, which keeps its kind.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return explainedError{err}
}

type explainedError struct{ error }

// Error implements error.
func (e explainedError) Error() string { return Explain(e.error) }

// Unwrap returns the error itself.
func (e explainedError) Unwrap() error { return e.error }

func (c one) wish() (drain.Wish, error) {
	node, err := c.needed("node")
	return drain.Wish{
		Nodes: []string{node}, Reason: strings.TrimSpace(c.values.Get("reason")),
		Force: c.values.Get("force") == "true", DeleteEmptyDirData: c.values.Get("delete-emptydir-data") == "true",
		IgnoreDaemonSets: c.values.Get("ignore-daemonsets") == "true",
	}, err
}

func (c one) planDrain(ctx context.Context) (act.Plan, error) {
	wish, err := c.wish()
	if err != nil {
		return act.Plan{}, err
	}
	wish.IgnoreDaemonSets = true // What stays anyway is no reason to ask twice.
	foreseen, err := wish.Plan(ctx, c.Options, c.Connection)
	if err != nil {
		return act.Plan{}, err
	}
	p := act.Plan{
		Title: "Drain " + wish.Nodes[0],
		Lines: []string{
			"This creates a NodeMaintenance, which cordons the node and evicts its pods. Interceptors run first, and budgets apply. The drain continues if you close this page.",
			foreseen.Summary + ".",
		},
		Table: foreseen.Rows, Command: wish.Command(), Submit: "Drain",
		Fields: []act.Field{
			{Name: "reason", Label: "Reason", Help: "shown in the conditions of the pods", Value: wish.Reason},
			{Name: "ignore-daemonsets", Label: "Ignore pods of DaemonSets, which stay", Check: true, Value: "true"},
			{Name: "force", Label: "Also evict pods that no controller would recreate", Help: "--force", Check: true, Value: fmt.Sprint(wish.Force)},
			{Name: "delete-emptydir-data", Label: "Also evict pods with emptyDir volumes, whose data is lost", Help: "--delete-emptydir-data", Check: true, Value: fmt.Sprint(wish.DeleteEmptyDirData)},
		},
	}
	if foreseen.Refused != nil {
		p.Lines = append(p.Lines, "With these options, "+foreseen.Refused.Error(), "Select below what it names, if you want that.")
	}
	return p, nil
}

func (c one) doDrain(ctx context.Context) (string, error) {
	wish, err := c.wish()
	if err != nil {
		return "", err
	}
	return wish.Command(), wish.Start(ctx, c.Options, c.Connection)
}

// refused is the plan of what cannot be done, which the page says.
func refused(p act.Plan, why error) (act.Plan, error) {
	p.Refused = why.Error()
	return p, nil
}

func (c one) planCancel(ctx context.Context) (act.Plan, error) {
	if c.values.Get("pod") != "" {
		return c.planCancelPod(ctx)
	}
	name, err := c.needed("node")
	if err != nil {
		return act.Plan{}, err
	}
	p := act.Plan{Title: "Cancel the drain of " + name, Command: "kubectl drawbridge cancel " + cli.ShellWord(name), Submit: "Cancel drain"}
	node, err := c.Node(ctx, name)
	if err != nil {
		return p, err
	}
	draining, err := stoppable(ctx, c.Connection, node, false)
	if err != nil {
		return refused(p, err)
	}
	for i := range draining {
		p.Lines = append(p.Lines, fmt.Sprintf("NodeMaintenance %s stops draining. Its requests that are not finished are withdrawn, and interceptors undo what they can.", draining[i].Name))
	}
	p.Lines = append(p.Lines, "The node stays cordoned until it is uncordoned.")
	return p, nil
}

func (c one) planCancelPod(ctx context.Context) (act.Plan, error) {
	name := c.values.Get("pod")
	p := act.Plan{
		Title: "Cancel the eviction of " + name, Submit: "Cancel eviction",
		Command: "kubectl drawbridge cancel " + cli.ShellWord("pod/"+name) + " -n " + cli.ShellWord(c.Namespace),
	}
	w, err := c.withdrawable(ctx, c.Connection, name)
	if err != nil {
		return refused(p, err)
	}
	for _, of := range w.requesters() {
		p.Lines = append(p.Lines, fmt.Sprintf("The request of %s is withdrawn.", of))
	}
	p.Lines = append(p.Lines, "A drain that is still running requests it again.")
	return p, nil
}

func (c one) doCancel(ctx context.Context) (string, error) {
	if pod := c.values.Get("pod"); pod != "" {
		return "", c.cancelPod(ctx, c.Connection, pod)
	}
	name, err := c.needed("node")
	if err != nil {
		return "", err
	}
	node, err := c.Node(ctx, name)
	if err != nil {
		return "", err
	}
	return "", c.cancelNode(ctx, c.Connection, node, false)
}

func (c one) planUncordon(ctx context.Context) (act.Plan, error) {
	name, err := c.needed("node")
	if err != nil {
		return act.Plan{}, err
	}
	p := act.Plan{Title: "Uncordon " + name, Command: "kubectl drawbridge uncordon " + cli.ShellWord(name), Submit: "Uncordon"}
	node, all, err := releasesOf(ctx, c.Connection, name, false)
	if err != nil {
		if node == nil {
			return p, err
		}
		return refused(p, err)
	}
	for _, r := range all {
		if r.selector == nil {
			p.Lines = append(p.Lines, fmt.Sprintf("NodeMaintenance %s is deleted, and its requests are withdrawn.", r.maintenance.Name))
		} else {
			p.Lines = append(p.Lines, fmt.Sprintf("NodeMaintenance %s continues without this node.", r.maintenance.Name))
		}
	}
	if len(all) == 0 && !node.Spec.Unschedulable {
		p.Lines = append(p.Lines, "The node is schedulable already, and under no maintenance.")
	} else {
		p.Lines = append(p.Lines, "Then the node is schedulable again. Requests of callers of pods/eviction on it are withdrawn, too.")
	}
	return p, nil
}

func (c one) doUncordon(ctx context.Context) (string, error) {
	name, err := c.needed("node")
	if err != nil {
		return "", err
	}
	return "", c.uncordon(ctx, c.Connection, name, false)
}

func (c one) skipped() (pod, interceptor string, err error) {
	pod, noPod := c.needed("pod")
	interceptor, noInterceptor := c.needed("interceptor")
	return pod, interceptor, errors.Join(noPod, noInterceptor)
}

func (c one) planSkip(ctx context.Context) (act.Plan, error) {
	pod, name, err := c.skipped()
	if err != nil {
		return act.Plan{}, err
	}
	p := act.Plan{
		Title: "Skip " + name, Submit: "Skip it",
		Command: c.skipCommand(pod, name) + " --reason=WHY",
		Fields:  []act.Field{{Name: "reason", Label: "Reason", Help: "recorded, so that others can see why the interceptor did not run", Required: true}},
	}
	er, err := requestOf(ctx, c.Connection, pod)
	if err == nil {
		err = skippable(er, name)
	}
	if err != nil {
		return refused(p, err)
	}
	p.Lines = []string{
		fmt.Sprintf("The turn of %s for pod %s ends, and the next one begins.", name, pod),
		"It may still be working, or what it protects may not be safe: check the page of the pod first. The report, an event and the audit log say who skipped it and why.",
	}
	return p, nil
}

func (c one) skipCommand(pod, interceptor string) string {
	return "kubectl drawbridge skip " + cli.ShellWord(pod) + " " + cli.ShellWord(interceptor) + " -n " + cli.ShellWord(c.Namespace)
}

func (c one) doSkip(ctx context.Context) (string, error) {
	pod, name, err := c.skipped()
	if err != nil {
		return "", err
	}
	reason, err := c.needed("reason")
	if err != nil {
		return "", errors.New("a reason is required: it is recorded, so that others can see why the interceptor did not run")
	}
	return c.skipCommand(pod, name) + " --reason=" + cli.ShellWord(reason), c.skip(ctx, c.Connection, pod, name, reason)
}
