//go:build unix

package install_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/internal/ownership"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// applierTimeout bounds one installation with its upgrade and its rollback.
const applierTimeout = 5 * time.Minute

// applier brings the chart into the cluster, never by force.
type applier interface {
	// apply brings a revision of the release, which is an installation, or an upgrade.
	apply(ctx context.Context, v values) error
	// rollback brings the first revision again, which was made with these values.
	rollback(ctx context.Context, first values) error
	remove(ctx context.Context) error
}

// byHelm is helm itself.
type byHelm struct{ kubeconfig string }

func (h byHelm) apply(ctx context.Context, v values) error {
	return install.Run(ctx, install.Options{Kubeconfig: h.kubeconfig, Values: v})
}

func (h byHelm) rollback(ctx context.Context, _ values) error {
	_, err := h.helm(ctx, "rollback", install.DefaultRelease, "1")
	return err
}

func (h byHelm) remove(ctx context.Context) error {
	return install.Uninstall(ctx, install.Options{Kubeconfig: h.kubeconfig, NoHooks: true})
}

func (h byHelm) helm(ctx context.Context, args ...string) (string, error) {
	helm, err := install.Helm(ctx)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, helm, append(args, "--namespace", install.DefaultNamespace, "--kubeconfig", h.kubeconfig)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// byServerSide renders the chart and applies it under a name, as tools of GitOps do: they
// do not look at what is in the cluster.
type byServerSide struct{ manager string }

func (s byServerSide) apply(ctx context.Context, v values) error {
	objects, err := install.Render(ctx, install.Options{Values: v})
	if err != nil {
		return err
	}
	// The definitions first: nothing of their kinds can be applied before.
	definitions := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
	if err := s.kubectl(ctx, definitions, "apply"); err != nil {
		return err
	}
	if _, err := kube.Kubectl(ctx, cluster.KubectlOptions{}, "wait", "--for=condition=Established", "--timeout=3m", "crd", "--all"); err != nil {
		return err
	}
	return s.kubectl(ctx, objects, "apply")
}

func (s byServerSide) rollback(ctx context.Context, first values) error { return s.apply(ctx, first) }

func (s byServerSide) remove(ctx context.Context) error {
	objects, err := install.Render(ctx, install.Options{})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, objects, "delete", "--ignore-not-found", "--wait=false")
}

func (s byServerSide) kubectl(ctx context.Context, objects []*unstructured.Unstructured, verb string, args ...string) error {
	var documents bytes.Buffer
	for _, object := range objects {
		if object.GetAnnotations()["helm.sh/hook"] != "" {
			continue
		}
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		documents.WriteString("---\n")
		documents.Write(document)
	}
	if verb == "apply" {
		args = append(args, "--server-side", "--field-manager="+s.manager)
	}
	result, err := kube.Kubectl(ctx, cluster.KubectlOptions{Stdin: &documents}, append([]string{verb, "-f", "-"}, args...)...)
	return errors.Join(err, result.Err())
}

// Whoever applies the chart may render other values of the fields that the manager
// writes. That is no conflict, and the manager's values are there again afterwards.
// The other tools of GitOps apply like Argo CD: test/gitops has them, with their examples.
func TestEveryApplierInstallsUpgradesAndRollsBackWithoutForce(t *testing.T) {
	cases := map[string]applier{
		"helm":    byHelm{kubeconfig(t)},
		"Argo CD": byServerSide{"argocd-controller"},
	}
	for name, by := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), applierTimeout)
			defer cancel()
			port, err := manager.FreePort(ctx)
			if err != nil {
				t.Fatal(err)
			}
			revision := func(seconds int) values {
				return values{"deployment": values{"enabled": false}, "webhook": values{
					"url": "https://localhost:" + strconv.Itoa(port), "failurePolicy": "Fail", "timeoutSeconds": seconds,
				}}
			}
			ownDefinitions(t)
			createNamespace(ctx, t, install.DefaultNamespace)
			t.Cleanup(func() {
				if err := by.remove(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			})
			if err := by.apply(ctx, revision(10)); err != nil {
				t.Fatalf("install: %v", err)
			}
			inst := &manager.Installation{
				Cluster: kube, Release: install.DefaultRelease, Namespace: install.DefaultNamespace,
				ServiceAccount: install.DefaultRelease, WebhookPort: port,
			}
			manager, err := inst.StartProcess(ctx, manager.ProcessOptions{Args: []string{"--webhook-configuration=" + inst.Release, "--certificate-settle=1s"}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := manager.Kill(); err != nil {
					t.Error(err)
				}
			})
			waitManaged(t, "after the installation", 10)
			if err := by.apply(ctx, revision(4)); err != nil {
				t.Fatalf("upgrade: %v", err)
			}
			waitManaged(t, "after the upgrade", 4)
			if err := by.rollback(ctx, revision(10)); err != nil {
				t.Fatalf("roll back: %v", err)
			}
			waitManaged(t, "after the rollback", 10)
		})
	}
}

func createNamespace(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	_, err := kube.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// waitManaged waits until the webhook configuration has the applier's timeout and all
// that the manager writes, of which the manager owns nothing.
func waitManaged(t *testing.T, when string, seconds int32) {
	t.Helper()
	cluster.Eventually(t, "the manager to have put everything right "+when, func(ctx context.Context) error {
		conf, err := kube.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, install.DefaultRelease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range conf.Webhooks {
			if err := managed(&conf.Webhooks[i], seconds); err != nil {
				return fmt.Errorf("webhook %s: %w", conf.Webhooks[i].Name, err)
			}
		}
		for _, entry := range conf.ManagedFields {
			if entry.Manager == ownership.FieldManager && strings.Contains(entry.FieldsV1.GetRawString(), "f:webhooks") {
				return fmt.Errorf("the manager owns %s", entry.FieldsV1.GetRawString())
			}
		}
		return nil
	})
}

// managed returns nil if a webhook is as it should be while a manager runs.
func managed(webhook *admissionregistrationv1.ValidatingWebhook, seconds int32) error {
	switch {
	case webhook.Name == failurepolicy.EvictionWebhook && *webhook.FailurePolicy != admissionregistrationv1.Fail:
		return fmt.Errorf("failurePolicy is %s", *webhook.FailurePolicy)
	case webhook.Name == failurepolicy.EvictionWebhook && *webhook.TimeoutSeconds != seconds:
		return fmt.Errorf("timeoutSeconds is %d", *webhook.TimeoutSeconds)
	case len(webhook.ClientConfig.CABundle) == 0:
		return errors.New("there is no CA")
	case strings.Count(*webhook.ClientConfig.URL, "/") < 4:
		return fmt.Errorf("there is no token in %s", *webhook.ClientConfig.URL)
	}
	return nil
}
