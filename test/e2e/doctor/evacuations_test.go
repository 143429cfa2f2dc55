//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// Whether a platform takes marks and migrations is known before a machine moves.
func TestDryRunsOfAnEvacuation(t *testing.T) {
	machine := kubeVirtWithAMachine(t)
	inst.ForTest(t, manager.Options{})
	healthy(t)

	t.Run("both are taken, and nothing has changed", func(t *testing.T) {
		passing(t, preset(t, "kubevirt"))
		want := fmt.Sprintf("tried with VirtualMachineInstance %s/vm", machine.GetNamespace())
		cluster.Eventually(t, "the doctor has "+want, func(context.Context) error {
			if c := consult(t, asAdmin, 0).check("evacuations"); c.Severity != doctor.OK || c.Summary != want {
				return fmt.Errorf("it says %+v", c)
			}
			return nil
		})
	})
	t.Run("the mark is discarded", func(t *testing.T) {
		policy := preset(t, "kubevirt")
		policy.Spec.Mark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "add", Path: "/status/evacuationNodeName", Value: "pod.spec.nodeName"}}}
		policy.Spec.Unmark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "remove", Path: "/status/evacuationNodeName"}}}
		passing(t, policy)
		recognised(t, 0, wanted{"evacuations", doctor.Fail, "evacuationpolicy/kubevirt", "the dry run of a mark: the write is discarded: the API server answers with success, but /status/evacuationNodeName is not what was written"})
	})
	t.Run("the migration is refused", func(t *testing.T) {
		passing(t, preset(t, "kubevirt"))
		noMigrations(t)
		recognised(t, 0, wanted{"evacuations", doctor.Fail, "evacuationpolicy/kubevirt", "no migrations today"})
	})
	t.Run("the person may only read", func(t *testing.T) {
		passing(t, preset(t, "kubevirt"))
		passing(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: inst.Release + "-doctor"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "readers"}},
		})
		w := wanted{"evacuations", doctor.Warn, "evacuationpolicy/kubevirt", `you may not "get" on virtualmachineinstances.kubevirt.io, ` +
			`"list" on kubevirts.kubevirt.io, "patch" on virtualmachineinstances.kubevirt.io, ` +
			`"list" on virtualmachineinstancemigrations.kubevirt.io, "create" on virtualmachineinstancemigrations.kubevirt.io`}
		cluster.Eventually(t, "the doctor says which permissions are missing", func(context.Context) error {
			r := consult(t, []string{"readers"}, 0)
			if r.find(w) == nil || r.code != 0 {
				return fmt.Errorf("exit code %d, findings %s", r.code, strings.Join(r.findings(), "\n"))
			}
			return nil
		})
	})

	now := vmcrds.New(vmcrds.Machine, machine.GetNamespace(), machine.GetName(), nil)
	migrations := &unstructured.UnstructuredList{}
	migrations.SetGroupVersionKind(vmcrds.Migration)
	err := errors.Join(admin.Get(t.Context(), client.ObjectKeyFromObject(machine), now), admin.List(t.Context(), migrations))
	if err != nil || now.GetResourceVersion() != machine.GetResourceVersion() || len(migrations.Items) > 0 {
		t.Errorf("something was changed: %v, %v, %v", err, now.Object, migrations.Items)
	}
}

// check is the result of one.
func (r run) check(name string) doctor.Result {
	for _, c := range r.Checks {
		if c.Check == name {
			return c
		}
	}
	return doctor.Result{}
}

// kubeVirtWithAMachine installs the stand-in for KubeVirt, with a machine that runs.
func kubeVirtWithAMachine(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	if err := vmcrds.Install(t.Context(), admin, vmcrds.KubeVirt()); err != nil {
		t.Fatal(err)
	}
	api := &vmcrds.API{Client: clientOf(t, vmcrds.APIAccount)}
	t.Cleanup(api.Close)
	if err := api.Start(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	config := vmcrds.New(vmcrds.Config, vmcrds.SystemNamespace, "kubevirt", nil)
	create(t, config)
	vmcrds.Set(config, "status.phase", "Deployed")
	if err := admin.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	namespace := kube.Namespace(t)
	pod := builder.Pod(namespace, "virt-launcher-vm").Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", "vm").Obj()
	create(t, pod)
	pod = cluster.ReadyPod(t, admin, pod.Namespace, pod.Name)
	machine := vmcrds.New(vmcrds.Machine, namespace, "vm", map[string]any{"spec.evictionStrategy": "LiveMigrate"})
	create(t, machine)
	vmcrds.Set(machine, "status", map[string]any{
		"phase": "Running", "nodeName": pod.Spec.NodeName,
		"conditions": []any{map[string]any{"type": "LiveMigratable", "status": "True"}},
	})
	if err := clientOf(t, vmcrds.HandlerAccount).Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return machine
}

// clientOf is a client of an account that may do everything.
func clientOf(t *testing.T, account string) client.Client {
	t.Helper()
	config, err := kube.ConfigFor(account, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noMigrations lets the API server refuse migrations until the end of the test.
func noMigrations(t *testing.T) {
	t.Helper()
	passing(t, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-migrations"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"kubevirt.io"}, APIVersions: []string{"v1"}, Resources: []string{"virtualmachineinstancemigrations"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no migrations today"}},
		},
	})
	passing(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-migrations"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-migrations", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
}
