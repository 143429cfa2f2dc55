//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// played names the file in which the programs of testdata/bin note what they were asked.
const played = "DRAWBRIDGE_TEST_PLAYED"

// playPrograms lets commands in containers, which run on this machine, find the programs of
// testdata/bin. The cluster must not run yet.
func playPrograms() error {
	programs, err := filepath.Abs(filepath.Join("testdata", "bin"))
	if err != nil {
		return fmt.Errorf("find the programs that are played: %w", err)
	}
	notes := filepath.Join(os.TempDir(), fmt.Sprintf("drawbridge-e2e-played-%d", os.Getpid()))
	return errors.Join(os.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH")), os.Setenv(played, notes))
}

// useRecipe applies a file of examples/recipes, as it is, and waits until its hooks and
// budgets are accepted and cover so many pods, by their names. It returns the hooks.
func useRecipe(t *testing.T, namespace, name string, covers map[string]int32) map[string]*v1alpha1.EvacuationHook {
	t.Helper()
	content := must(os.ReadFile("../../examples/recipes/" + name + ".yaml"))(t)
	options := cluster.KubectlOptions{Stdin: bytes.NewReader(content)}
	result, err := kube.Kubectl(t.Context(), options, "apply", "--validate=strict", "--namespace", namespace, "-f", "-")
	if err := errors.Join(err, result.Err()); err != nil {
		t.Fatal(err)
	}
	inForce := func(of string, conditions []metav1.Condition, pods *int32) bool {
		return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionAccepted) && pods != nil && (covers == nil || *pods == covers[of])
	}
	var names []string
	hooks := map[string]*v1alpha1.EvacuationHook{}
	list := &v1alpha1.EvacuationHookList{}
	if err := admin.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		hook := &list.Items[i]
		names, hooks[hook.Name] = append(names, hook.Name), hook
		waitHook(t, hook, "accepted", func(s v1alpha1.EvacuationHookStatus) bool { return inForce(hook.Name, s.Conditions, s.MatchingPods) })
	}
	budgets := &v1alpha1.EvictionBudgetList{}
	if err := admin.List(t.Context(), budgets, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		names = append(names, b.Name)
		waitBudget(t, b, "be accepted", func(s *v1alpha1.EvictionBudgetStatus) bool { return inForce(b.Name, s.Conditions, s.MatchingPods) })
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(covers)), names); covers != nil && diff != "" {
		t.Fatalf("hooks and budgets of the recipe (-want +got):\n%s", diff)
	}
	if len(names) == 0 {
		t.Fatal("the recipe has no hook and no budget")
	}
	return hooks
}

// mayDo binds the role of a recipe to the account of the same name, as the recipe says, and wants that
// the account then may do all of this, whether the kinds are there or not.
func mayDo(t *testing.T, namespace, name string, actions ...authorizationv1.ResourceAttributes) {
	t.Helper()
	account := namespace + ":" + name
	bound := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "create", "rolebinding", name, "--role="+name, "--serviceaccount="+account, "-n", namespace))(t)
	if err := bound.Err(); err != nil {
		t.Fatal(err)
	}
	for _, action := range actions {
		action.Namespace = namespace
		eventually(t, account+" to be allowed to "+action.String(), func(ctx context.Context) error { // RBAC needs a moment.
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + account, ResourceAttributes: &action}}
			if err := admin.Create(ctx, review); err != nil {
				return err
			}
			if !review.Status.Allowed {
				return errors.New("it may not")
			}
			return nil
		})
	}
}

// inWindow lets an eviction go that waits for the next window of a budget, which the test
// does not: somebody skips the budgets. While the window is open nobody has to.
func inWindow(t *testing.T, pod *corev1.Pod, budget string) {
	t.Helper()
	b := &v1alpha1.EvictionBudget{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: budget}, b); err != nil {
		t.Fatal(err)
	}
	if w := b.Status.Window; w != nil && w.Start.Time.Before(time.Now().Add(time.Minute)) && w.End.After(time.Now()) {
		return // Also if it is about to open: then nobody knows what comes first.
	}
	closed := "EvictionBudget " + budget + ": no window is open, the next one opens at "
	eventually(t, "pod "+pod.Name+" to wait for a window", func(ctx context.Context) error {
		er, err := getRequest(ctx, pod)
		if err != nil {
			return err
		}
		if message := v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message; !strings.HasPrefix(message, closed) {
			return fmt.Errorf("the budgets say %q", message)
		}
		return nil
	})
	lives(t, pod)
	plugin(t, "skip", pod.Name, v1alpha1.BudgetInterceptor, "-n", pod.Namespace, "--reason=the window is agreed by telephone")
}

// play runs the script of a hook's Job on this machine, as its container would: with the
// environment of the Job. The programs of its image are played by scripts, by their names;
// they keep files in a folder of their own and note there, in calls, what they were asked.
// It returns what the Job says to people at its end, and the calls.
func play(t *testing.T, job *batchv1.Job, programs map[string]string) (says string, calls []string) {
	t.Helper()
	dir := t.TempDir()
	programs = maps.Clone(programs)
	programs["sleep"] = ""
	for name, body := range programs {
		note := ""
		if name != "sleep" {
			note = "echo \"$*\" | tr '\\n' ' ' >> calls; echo >> calls\n"
		}
		content := "#!/bin/sh\ncd '" + dir + "' || exit 1\n" + note + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	container := job.Spec.Template.Spec.Containers[0]
	said := filepath.Join(dir, "termination-log")
	argv := slices.Concat(container.Command, container.Args)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "/dev/termination-log", said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, v := range container.Env {
		if v.ValueFrom == nil {
			command.Env = append(command.Env, v.Name+"="+v.Value)
		}
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("the script of Job %s: %v\n%s", job.Name, err, out)
	}
	for line := range strings.Lines(string(must(os.ReadFile(filepath.Join(dir, "calls")))(t))) {
		calls = append(calls, strings.TrimSpace(line))
	}
	return strings.TrimSpace(string(must(os.ReadFile(said))(t))), calls
}

// listenFor serves as a pod, at an address of this machine, and gives it to the pod.
func listenFor(t *testing.T, pod *corev1.Pod, port string, handler http.Handler) {
	t.Helper()
	listener := must(freeLoopback(t.Context(), port))(t)
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to have the server's address", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status.PodIP, pod.Status.PodIPs = host, []corev1.PodIP{{IP: host}}
		return admin.Status().Update(ctx, pod)
	})
}

// setStatus writes the status of an object of a foreign kind.
func setStatus(t *testing.T, object *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	eventually(t, object.GetKind()+" "+object.GetName()+" to have its status", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		object.Object["status"] = status
		return admin.Status().Update(ctx, object)
	})
}
