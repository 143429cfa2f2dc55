//go:build unix

package manager_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// output collects what a program prints while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// builds are the two variants of the example. They print the same and do the same.
var builds = map[string]func(context.Context) (string, error){
	"the SDK":         manager.BuildInterceptor,
	"plain client-go": manager.BuildClientGoInterceptor,
}

// example runs a variant of the example as a user with nothing but the permissions
// that its README names.
func example(t *testing.T, variant, name string, work time.Duration) *output {
	t.Helper()
	binary, err := builds[variant](t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bind := func(role string) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}
	}
	permissions := []client.Object{bind("drawbridge-interceptor")}
	if variant == "plain client-go" {
		permissions = []client.Object{bind(name), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"drawbridge.dev"}, Resources: []string{"evictionrequests"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{"drawbridge.dev"}, Resources: []string{"evictionrequests/status"}, Verbs: []string{"patch"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
			},
		}}
	}
	for _, obj := range permissions {
		if err := api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The context of the test ends before its cleanups run.
			if err := api.Delete(context.WithoutCancel(t.Context()), obj); err != nil {
				t.Errorf("delete %T: %v", obj, err)
			}
		})
	}
	kubeconfig, err := up.KubeconfigFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	command := exec.CommandContext(t.Context(), binary, "--kubeconfig="+kubeconfig, "--name="+name, "--work="+work.String())
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Wait() // Killed by the context.
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, out)
		}
	})
	eventually(t, "the interceptor to start", says(out, "is waiting for its turn"))
	return out
}

func says(out *output, words string) func() error {
	return func() error {
		if !strings.Contains(out.String(), words) {
			return fmt.Errorf("%q was not printed", words)
		}
		return nil
	}
}

func TestTheExampleWorksAndHandsOver(t *testing.T) {
	start(t, manager.Options{})
	first, second := example(t, "the SDK", "one.example.com", time.Second), example(t, "plain client-go", "two.example.com", time.Second)
	held := pod(t, up.Namespace(t), "one.example.com", "two.example.com")
	if err := evict(t, held); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("got %v, want 429", err)
	}
	eventually(t, "the first", says(first, "completed"))
	eventually(t, "the second", says(second, "completed"))
	gone(t, held)
	er := request(t, held)
	if got := fmt.Sprint(er.Status.ProcessedInterceptors); !strings.HasPrefix(got, "[one.example.com two.example.com") {
		t.Errorf("processed: %s", got)
	}
	for _, item := range er.Status.Interceptors[:2] {
		if item.StartTime == nil || item.CompletionTime == nil || item.Message != "done" {
			t.Errorf("report: %+v", item)
		}
	}
}

func TestTheExampleNoticesACancellation(t *testing.T) {
	start(t, manager.Options{})
	for variant := range builds {
		t.Run(variant, func(t *testing.T) {
			out := example(t, variant, "slow.example.com", time.Hour)
			held := pod(t, up.Namespace(t), "slow.example.com")
			if err := evict(t, held); !apierrors.IsTooManyRequests(err) {
				t.Fatalf("got %v, want 429", err)
			}
			eventually(t, "its start", says(out, "started, expecting to work for 1h0m0s"))
			nobody := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"requesters":[]}}`))
			if err := api.Patch(t.Context(), request(t, held), nobody); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its end", says(out, "stopping, because the request is Canceled (NoRequesters)"))
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(held), &corev1.Pod{}); err != nil {
				t.Errorf("the pod: %v", err)
			}
		})
	}
}
