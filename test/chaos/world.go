//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// scheme knows Kubernetes' types and ours.
var scheme = cluster.Scheme()

func init() {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // It would tell of every watch that breaks.
}

// group is whose members may drain nodes, actors the role of interceptors, and stampers
// that of whoever may write the status of requests and do nothing else.
const (
	group    = "drainers"
	actors   = "chaos-interceptors"
	stampers = "chaos-stampers"
)

// World is a control plane with the chart in it, for one run after the other.
type World struct {
	// Cluster is the control plane. It belongs to whoever made it.
	Cluster *cluster.Cluster

	inst         *manager.Installation
	admin        client.WithWatch
	native       bool // It serves lifecycle.k8s.io.
	manager      string
	kubeconfig   string
	webhookPorts []int
	healthPorts  []int
	runs         int

	mu    sync.Mutex
	facts []Fact
}

// ClusterOptions are those a world needs, for plans with lifecycle.k8s.io or for the others.
func ClusterOptions(native bool) cluster.Options {
	options := cluster.Options{RequestLog: true}
	if native {
		options = options.WithNative()
	}
	return options
}

// Serves reports whether the control plane serves lifecycle.k8s.io.
func (w *World) Serves() bool { return w.native }

// webhookTimeout is short, so that a replica that hangs is noticed within a run.
const webhookTimeout = 2 * time.Second

// NewWorld prepares a control plane of ClusterOptions for managers of this file, which
// Build has made.
func NewWorld(ctx context.Context, c *cluster.Cluster, program string) (*World, error) {
	w := &World{Cluster: c, manager: program}
	var err error
	if w.admin, err = client.NewWithWatch(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	_, err = w.admin.RESTMapper().RESTMapping(schema.GroupKind{Group: lifecyclev1alpha1.GroupName, Kind: "Eviction"})
	if w.native = err == nil; err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("look for lifecycle.k8s.io: %w", err)
	}
	port, err := ports.take(ctx)
	if err != nil {
		return nil, err
	}
	if w.inst, err = manager.Install(ctx, c, manager.InstallOptions{WebhookPort: port, Values: map[string]any{
		"webhook": map[string]any{"timeoutSeconds": int(webhookTimeout / time.Second)},
		"budgets": map[string]any{"exhausted": map[string]any{"enabled": true}},
		// For the policy of machines, which are pods.
		"policies": map[string]any{"rules": []any{map[string]any{
			"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get", "list", "watch", "patch"},
		}}},
	}}); err != nil {
		return nil, err
	}
	if w.kubeconfig, err = c.KubeconfigFileForServiceAccount(ctx, w.inst.Namespace, w.inst.ServiceAccount); err != nil {
		return nil, err
	}
	for range Replicas {
		for _, list := range []*[]int{&w.webhookPorts, &w.healthPorts} {
			port, err := ports.take(ctx)
			if err != nil {
				return nil, err
			}
			*list = append(*list, port)
		}
	}
	return w, w.createRoles(ctx)
}

// clientOptions make clients that need not ask first which kinds there are.
func (w *World) clientOptions() client.Options {
	return client.Options{Scheme: scheme, Mapper: w.admin.RESTMapper()}
}

// ports have those that worlds of this process use: nobody listens on one of them all
// the time, so another world would find it free.
var ports takenPorts

type takenPorts struct {
	mu    sync.Mutex
	taken map[int]bool
}

func (p *takenPorts) take(ctx context.Context) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		port, err := manager.FreePort(ctx)
		if err != nil {
			return 0, err
		}
		if p.taken[port] {
			continue
		}
		if p.taken == nil {
			p.taken = map[int]bool{}
		}
		p.taken[port] = true
		return port, nil
	}
}

// Use makes the managers of later runs those of another file, which Build has made.
func (w *World) Use(program string) { w.manager = program }

// Build builds the manager of test/chaos/cmd/manager into a folder, with build tags,
// separated by commas, and returns its path.
func Build(ctx context.Context, folder, tags string) (string, error) {
	path := filepath.Join(folder, "chaos-manager-"+tags)
	command := exec.CommandContext(ctx, "go", "build", "-tags="+tags, "-o", path, "github.com/drawbridge-dev/drawbridge/test/chaos/cmd/manager")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the manager: %w: %s", err, out)
	}
	return path, nil
}

// createRoles are the permissions of drainers and interceptors.
func (w *World) createRoles(ctx context.Context) error {
	drain := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}},
	}
	report := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"get", "update"}},
	}
	respond := []rbacv1.PolicyRule{
		{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions"}, Verbs: []string{"get"}},
		{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions/status"}, Verbs: []string{"patch"}},
	}
	bind := func(name string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}},
		}
	}
	return errors.Join(
		w.admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: nativeResponders}, Rules: respond}),
		w.admin.Create(ctx, bind(nativeResponders)),
		w.admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: group}, Rules: drain}),
		w.admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: actors}, Rules: report}),
		w.admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: stampers}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests/status"}, Verbs: []string{"get", "update", "patch"}},
		}}),
		w.admin.Create(ctx, bind(group)),
	)
}

// tellf notes a fact of the present run.
func (w *World) tellf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts = append(w.facts, Fact{time.Now(), fmt.Sprintf(format, args...)})
}

// takeFacts empties the notes.
func (w *World) takeFacts() []Fact {
	w.mu.Lock()
	defer w.mu.Unlock()
	facts := w.facts
	w.facts = nil
	return facts
}

// setFailurePolicy sets the one of the webhook for evictions, while no manager runs, and
// waits until it is in force.
func (w *World) setFailurePolicy(ctx context.Context, policy admissionregistrationv1.FailurePolicyType) error {
	err := insist(ctx, "set the failure policy", func(ctx context.Context) error {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := w.admin.Get(ctx, client.ObjectKey{Name: w.inst.Release}, config); err != nil {
			return err
		}
		before := config.DeepCopy()
		config.Webhooks[0].FailurePolicy = &policy
		return w.admin.Patch(ctx, config, client.MergeFrom(before))
	})
	if err != nil {
		return err
	}
	want := apierrors.IsInternalError
	if policy == admissionregistrationv1.Ignore {
		want = apierrors.IsNotFound
	}
	return w.probe(ctx, want)
}

// probe evicts, as a dry run, a pod that does not exist, until the error is the one
// wanted: "not found" means that the webhook let it pass or was passed by.
func (w *World) probe(ctx context.Context, want func(error) bool) error {
	return insist(ctx, "wait for the API server's view of the webhook", func(ctx context.Context) error {
		nobody := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "nobody"}}
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
		err := w.admin.SubResource("eviction").Create(ctx, nobody, eviction)
		if want(err) {
			return nil
		}
		return fmt.Errorf("the answer is %w", err)
	})
}
