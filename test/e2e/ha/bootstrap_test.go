//go:build unix

package ha

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	fail   = admissionregistrationv1.Fail
	ignore = admissionregistrationv1.Ignore
)

// Until a manager has been reached, an installation refuses no eviction, whatever the
// values say. From then on the policy is theirs, through outages and upgrades.
func TestTheFailurePolicyWaitsForTheProof(t *testing.T) {
	inst := installed(t, nil) // It wants Fail.
	namespace := kube.Namespace(t)
	first := createPod(t, builder.Pod(namespace, "first").Obj())
	waitPolicy(t, ignore)
	if err := evict(t.Context(), first, true); err != nil {
		t.Errorf("an eviction before there is a manager: %v", err)
	}

	// It runs, and cannot be reached: the API server calls another port.
	port := must(manager.FreePort(t.Context()))(t)
	elsewhere := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := inst.StartProcess(ctx, manager.ProcessOptions{Args: []string{"--webhook-port=" + itoa(port)}})
		elsewhere <- err
	}()
	eventually(t, "the authority", func(ctx context.Context) error {
		conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := admin.Get(ctx, client.ObjectKey{Name: inst.Release}, conf); err != nil {
			return err
		}
		if len(conf.Webhooks[0].ClientConfig.CABundle) == 0 {
			return errors.New("it is not there")
		}
		return nil
	})
	if err := failurepolicy.Prove(t.Context(), kube.Client().PolicyV1(), inst.Namespace); err == nil {
		t.Error("a manager was reached that cannot be")
	}
	if err := evict(t.Context(), first, true); err != nil {
		t.Errorf("an eviction while nobody is reached: %v", err)
	}
	if got := must(policy(t.Context()))(t); got != ignore {
		t.Errorf("the policy is %s while nobody is reached", got)
	}
	cancel() // It kills the process, too.
	if err := <-elsewhere; err == nil {
		t.Error("a manager that cannot be reached counts as ready")
	}

	p := start(t, inst)
	if got := must(policy(t.Context()))(t); got != fail {
		t.Errorf("the policy is %s when the manager is reached", got)
	}
	if err := failurepolicy.Prove(t.Context(), kube.Client().PolicyV1(), inst.Namespace); err != nil {
		t.Errorf("the proof: %v", err)
	}
	setPolicy(t, ignore)
	waitPolicy(t, fail)
	stop(t, p)
	// The API server may come to know a moment later than we that the policy was set right.
	eventually(t, "an eviction in an outage to fail", func(ctx context.Context) error {
		if err := evict(ctx, first, true); !apierrors.IsInternalError(err) {
			return errors.Join(errors.New("want a failed call"), err)
		}
		return nil
	})

	// An upgrade keeps it, although the chart begins with Ignore.
	upgrade(t, inst, values{"timeoutSeconds": 4})
	if got := must(policy(t.Context()))(t); got != fail {
		t.Errorf("the upgrade made it %s", got)
	}
	upgrade(t, inst, values{"failurePolicy": "Ignore"})
	start(t, inst)
	waitPolicy(t, ignore)
}

// upgrade applies the chart once more with other values of the webhook.
func upgrade(t *testing.T, inst *manager.Installation, webhook values) {
	t.Helper()
	merged := values{"url": "https://localhost:" + itoa(inst.WebhookPort), "failurePolicy": "Fail"}
	for k, v := range webhook {
		merged[k] = v
	}
	err := install.Run(t.Context(), install.Options{Kubeconfig: kubeconfig(t), Values: values{"deployment": values{"enabled": false}, "webhook": merged}})
	if err != nil {
		t.Fatal(err)
	}
}
