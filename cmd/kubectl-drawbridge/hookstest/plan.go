package hookstest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook"
)

// plan prints what a hook and its undo would do for the pod. It runs nothing.
func (t *options) plan(ctx context.Context, c client.Client, f facts) error {
	workload := func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(apiVersion)
		object.SetKind(kind)
		switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); {
		case apierrors.IsNotFound(err):
			return nil, nil //nolint:nilnil // That is how Render is told.
		case err != nil:
			return nil, err //nolint:wrapcheck // Render says which object it is.
		}
		return object.Object, nil
	}
	do, undo, err := hook.Render(ctx, f.Hook, f.Pod, []string{v1alpha1.HookTestRequester}, t.Clock.Now(), workload)
	if err != nil {
		return fmt.Errorf("hook %s would fail for pod %s: %w", f.Hook.Name, f.Pod.Name, err)
	}
	fmt.Fprintf(t.Out, "# For pod %s, hook %s would %s", f.Pod.Name, f.Hook.Name, planned(do))
	if err := t.printRendered(ctx, c, do); err != nil {
		return err
	}
	if undo == nil {
		return nil
	}
	fmt.Fprintf(t.Out, "---\n# If the eviction is canceled, and after a test, it would %s", planned(undo))
	return t.printRendered(ctx, c, undo)
}

// planned is the end of a sentence about what is printed below it.
func planned(r *hook.Rendered) string {
	switch {
	case r.Job != nil:
		return "run this Job. Its name, owner and DEADLINE are made up.\n"
	case r.Exec != nil:
		return "run this command.\n"
	case r.HTTP != nil:
		return "send this request.\n"
	default:
		return "wait until this condition is true.\n"
	}
}

func (t *options) printRendered(ctx context.Context, c client.Client, r *hook.Rendered) error {
	var made any
	switch {
	case r.Job != nil:
		job := r.Job.DeepCopy()
		if err := c.Create(ctx, job, client.DryRunAll, client.FieldOwner(cli.FieldOwner)); err != nil {
			return fmt.Errorf("create Job %s in a dry run: %w", r.Job.Name, err)
		}
		job.ManagedFields = nil
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
		if err != nil {
			return fmt.Errorf("convert Job %s: %w", job.Name, err)
		}
		object["apiVersion"], object["kind"] = "batch/v1", "Job"
		delete(object, "status")
		made = object
	case r.Exec != nil:
		made = map[string]any{"container": r.Exec.Container, "command": r.Exec.Command}
	case r.HTTP != nil:
		made = renderedHTTP(r.HTTP)
	default:
		made = renderedWait(r.Wait)
	}
	raw, err := yaml.Marshal(made)
	if err != nil {
		return fmt.Errorf("print what the hook would do: %w", err)
	}
	_, err = t.Out.Write(raw)
	return err
}

func renderedHTTP(r *hook.RenderedHTTP) map[string]any {
	made := map[string]any{"method": r.Method, "url": text.Clean(r.URL)}
	if r.Body != "" || r.Method != http.MethodGet {
		made["body"] = r.Body
	}
	if r.HeadersFrom != "" {
		made["headersFrom"] = "Secret " + r.HeadersFrom
	}
	if r.CAFrom != "" {
		made["caFrom"] = "ConfigMap " + r.CAFrom
	}
	return made
}

func renderedWait(r *hook.RenderedWait) map[string]any {
	made := map[string]any{"until": strings.TrimSpace(r.Until), "now": r.Met}
	if r.Failure != "" {
		made["now"] = "it has no value: " + text.Clean(r.Failure)
	}
	if r.Workload != "" {
		made["workload"] = r.Workload
		if !r.Found {
			made["workload"] = r.Workload + ", which does not exist"
		}
	}
	return made
}
