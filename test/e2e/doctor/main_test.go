//go:build unix

// Package doctor produces what `kubectl drawbridge doctor` looks for, on a real
// control plane, and runs the command as a person does. The tests break the
// installation that they share, so they run one after the other.
package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

var (
	kube   *cluster.Cluster
	inst   *manager.Installation
	admin  client.Client
	scheme = cluster.Scheme(apiextensionsv1.AddToScheme)
)

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 2}, func(c *cluster.Cluster) (err error) {
		kube = c
		if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		inst, err = manager.Install(ctx, c, manager.InstallOptions{})
		return err
	}))
}

// run is one run of the command.
type run struct {
	doctor.Report
	// code is the exit code.
	code int
	// stderr is what is said besides the report.
	stderr string
}

// asAdmin is whoever may do everything.
var asAdmin = []string{"system:masters"}

// consult runs the command as a person of those groups, whose clock is ahead.
func consult(t *testing.T, groups []string, ahead time.Duration, args ...string) run {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile("pat-"+strings.Join(groups, "-"), groups...)
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &stderr}
	o.Clock = testingclock.NewFakeClock(time.Now().Add(ahead))
	o.Size = func() (int, int, bool) { return 0, 0, false }
	command := plugin.NewCommand(o)
	command.SetArgs(append([]string{"doctor", "--kubeconfig=" + kubeconfig, "--output=json"}, args...))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = command.ExecuteContext(ctx)
	r := run{code: plugin.ExitCode(err), stderr: plugin.Explain(err)}
	if err := json.Unmarshal(out.Bytes(), &r.Report); err != nil {
		t.Fatalf("read the report: %v: %s %s", err, out.String(), r.stderr)
	}
	return r
}

// wanted is a finding that must be there.
type wanted struct {
	check    string
	severity doctor.Severity
	// object and what are parts of the finding's words.
	object, what string
}

// find returns the finding, or nil.
func (r run) find(w wanted) *doctor.Finding {
	for _, c := range r.Checks {
		for i := range c.Findings {
			f := &c.Findings[i]
			if f.Check == w.check && f.Severity == w.severity && strings.Contains(f.Object, w.object) && strings.Contains(f.What, w.what) {
				return f
			}
		}
	}
	return nil
}

// findings are all of them, in words.
func (r run) findings() []string {
	var all []string
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			all = append(all, fmt.Sprintf("%s %s %s: %s (do: %s)", f.Severity, f.Check, f.Object, f.What, f.Do))
		}
	}
	return all
}

// recognised waits until the doctor finds it, and returns the run.
func recognised(t *testing.T, ahead time.Duration, w wanted) run {
	t.Helper()
	return recognisedBeside(t, ahead, w, doctor.Fail)
}

// recognisedBeside waits until the doctor finds it and nothing worse than that. On a machine where
// a call takes long, the doctor may find for once that a manager does not answer.
func recognisedBeside(t *testing.T, ahead time.Duration, w wanted, worst doctor.Severity) run {
	t.Helper()
	var r run
	cluster.Eventually(t, fmt.Sprintf("the doctor finds %+v", w), func(context.Context) error {
		if r = consult(t, asAdmin, ahead); r.find(w) == nil || worst != doctor.Fail && r.Count(doctor.Fail) > 0 {
			return fmt.Errorf("it finds %s", strings.Join(r.findings(), "\n"))
		}
		return nil
	})
	wantCode := 0
	if r.Count(doctor.Fail) > 0 {
		wantCode = 1
	}
	if r.code != wantCode {
		t.Errorf("exit code %d, want %d (%s)", r.code, wantCode, r.stderr)
	}
	return r
}

// healthy waits until the doctor finds nothing.
func healthy(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, "the doctor finds nothing", func(context.Context) error {
		r := consult(t, asAdmin, 0)
		if all := r.findings(); len(all) > 0 {
			return fmt.Errorf("it finds %s", strings.Join(all, "\n"))
		}
		if r.code != 0 || r.Severity != doctor.OK {
			return fmt.Errorf("exit code %d, severity %s (%s)", r.code, r.Severity, r.stderr)
		}
		return nil
	})
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	cluster.Create(t, admin, object)
}

// passing creates an object that goes with the test.
func passing(t *testing.T, object client.Object) {
	t.Helper()
	create(t, object)
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}

// changed changes an object until the end of the test.
func changed[T client.Object](t *testing.T, object T, change func(T)) {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	before := object.DeepCopyObject().(T)
	change(object)
	if err := admin.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatalf("change %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		// What the API server counts is no part of the change.
		before.SetResourceVersion(object.GetResourceVersion())
		before.SetGeneration(object.GetGeneration())
		before.SetManagedFields(object.GetManagedFields())
		if err := admin.Patch(context.Background(), before, client.MergeFrom(object)); err != nil {
			t.Errorf("change %T %s back: %v", object, object.GetName(), err)
		}
	})
}

// removed deletes an object until the end of the test.
func removed[T client.Object](t *testing.T, object T) {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), object); err != nil {
		t.Fatalf("delete %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		object.SetResourceVersion("")
		object.SetUID("")
		if err := admin.Create(context.Background(), object); err != nil {
			t.Errorf("create %T %s again: %v", object, object.GetName(), err)
		}
	})
}
