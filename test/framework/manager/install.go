//go:build unix

package manager

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// readyTimeout bounds every wait for the manager or the API server.
const readyTimeout = waiting.Patience

// InstallOptions of the chart. The zero value is fine.
type InstallOptions struct {
	// Values override the chart's. deployment.enabled is false and webhook.url
	// points at this machine unless they say otherwise.
	Values map[string]any
	// WebhookPort is where managers will listen; a free one when 0.
	WebhookPort int
	// Chart is a folder or a package; this repository's chart when empty.
	Chart string
}

// Installation is the chart in a cluster.
type Installation struct {
	Cluster *cluster.Cluster
	// Release, Namespace and ServiceAccount are names in the cluster.
	Release, Namespace, ServiceAccount string
	// WebhookPort is the port of 127.0.0.1 that the API server calls.
	WebhookPort int

	admin   kubernetes.Interface
	webhook bool
	started atomic.Int64
}

// Install installs the chart, without its Deployment, and returns when the API
// is served and the policies are enforced. The webhook's failure policy is Ignore until
// a manager has run; Fail is what it becomes by default here.
func Install(ctx context.Context, c *cluster.Cluster, o InstallOptions) (*Installation, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // The first time, helm is built.
	defer cancel()
	port := o.WebhookPort
	if port == 0 {
		ports, err := freePorts(ctx, 1)
		if err != nil {
			return nil, err
		}
		port = ports[0]
	}
	admin, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	kubeconfig, err := c.KubeconfigFile("drawbridge-installer", "system:masters")
	if err != nil {
		return nil, err
	}
	values := merge(map[string]any{
		"deployment": map[string]any{"enabled": false},
		// Fail, because with the chart's default nobody could tell when the API server
		// begins to call us, or notice a call that the webhook missed. And the longest timeout there
		// is: on a busy machine a call may stand still for longer than the chart's five seconds.
		"webhook": map[string]any{"url": "https://localhost:" + strconv.Itoa(port), "failurePolicy": "Fail", "timeoutSeconds": 30},
	}, o.Values)
	i := &Installation{
		Cluster:        c,
		Release:        install.DefaultRelease,
		Namespace:      install.DefaultNamespace,
		ServiceAccount: install.DefaultRelease,
		WebhookPort:    port,
		admin:          admin,
	}
	if err := install.Run(ctx, install.Options{Kubeconfig: kubeconfig, Release: i.Release, Namespace: i.Namespace, Values: values, Chart: o.Chart}); err != nil {
		return nil, err
	}
	if err := install.WaitReady(ctx, c.Config()); err != nil {
		return nil, err
	}
	_, err = admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, i.Release, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return i, nil // Switched off by the values.
		}
		return nil, fmt.Errorf("get webhook configuration: %w", err)
	}
	i.webhook = true
	return i, nil
}

// waitPolicy waits until the manager has set the failure policy that the chart wants,
// which it does when it has proven that the API server reaches it.
func (i *Installation) waitPolicy(ctx context.Context) error {
	return waiting.For(ctx, "the failure policy", i.checkPolicy)
}

// checkPolicy returns nil when the failure policy is the one that the chart wants.
func (i *Installation) checkPolicy(ctx context.Context) error {
	conf, err := i.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, i.Release, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get webhook configuration: %w", err)
	}
	wanted := conf.Annotations[failurepolicy.WantedAnnotation]
	for _, webhook := range conf.Webhooks {
		if webhook.Name == failurepolicy.EvictionWebhook && webhook.FailurePolicy != nil && string(*webhook.FailurePolicy) == wanted {
			return nil
		}
	}
	return fmt.Errorf("it is not %s yet", wanted)
}

// WebhookURL is where the API server calls the webhook of that path, with the token that
// it proves itself by.
func (i *Installation) WebhookURL(ctx context.Context, path string) (string, error) {
	conf, err := i.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, i.Release, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get webhook configuration: %w", err)
	}
	for _, webhook := range conf.Webhooks {
		if url := webhook.ClientConfig.URL; url != nil && strings.Contains(*url, path+"/") {
			return *url, nil
		}
	}
	return "", fmt.Errorf("no webhook is called at %s with a token", path)
}

// waitProbe evicts, as a dry run, a pod that does not exist until the error is
// the one wanted: "not found" means that the webhook let it pass.
func (i *Installation) waitProbe(ctx context.Context, what string, want func(error) bool) error {
	probe := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "drawbridge-webhook-probe"},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}
	return waiting.For(ctx, what, func(ctx context.Context) error {
		if err := i.admin.PolicyV1().Evictions(probe.Namespace).Evict(ctx, probe); !want(err) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
}

// config is that of the chart's service account.
func (i *Installation) config(ctx context.Context) (*rest.Config, error) {
	return i.Cluster.ConfigForServiceAccount(ctx, i.Namespace, i.ServiceAccount)
}

// logFile opens the log of the next manager beside those of the cluster, which
// keeps them when a test fails.
func (i *Installation) logFile() (*os.File, error) {
	name := "drawbridge-" + strconv.FormatInt(i.started.Add(1), 10) + ".log"
	file, err := os.Create(filepath.Join(i.Cluster.Dir(), "logs", name))
	if err != nil {
		return nil, fmt.Errorf("create log of the manager: %w", err)
	}
	return file, nil
}

// merge lays over on top of base, maps into maps.
func merge(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	for key, value := range over {
		below, ok := merged[key].(map[string]any)
		above, ok2 := value.(map[string]any)
		if ok && ok2 {
			value = merge(below, above)
		}
		merged[key] = value
	}
	return merged
}

// Ports are taken from below the range of outgoing connections and beside that
// of package cluster, so that a manager that was stopped finds its port still
// free when it comes back.
const (
	firstPort = 12000
	lastPort  = 19999
	portTries = 200
)

// FreePort returns a free port of 127.0.0.1, for the webhook of a further manager.
func FreePort(ctx context.Context) (int, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// given are the ports that this process has handed out. Their users may not listen yet, or
// may have stopped for a moment.
var given sync.Map

// freePorts returns n different free ports of 127.0.0.1, and none that it has returned
// before.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	var listen net.ListenConfig
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := listen.Listen(ctx, "tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("release port %d: %w", port, err)
		}
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports between %d and %d: gave up after %d tries", n, firstPort, lastPort, portTries)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
