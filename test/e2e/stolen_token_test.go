//go:build unix

package e2e

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Whoever has the manager's token may not do with it what the manager never does. All of
// it is tried as a dry run, which is admitted like the real call.
func TestAStolenTokenIsOfLittleUse(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj())
	thief := must(client.New(must(kube.ConfigForServiceAccount(t.Context(), inst.Namespace, inst.ServiceAccount))(t), client.Options{Scheme: scheme}))(t)
	patchNode(t, node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	})
	onNode := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: node}, onNode); err != nil {
		t.Fatal(err)
	}
	merge := func(object client.Object, patch string, status bool) error {
		raw := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
		object = object.DeepCopyObject().(client.Object)
		if status {
			return thief.Status().Patch(t.Context(), object, raw, client.DryRunAll)
		}
		return thief.Patch(t.Context(), object, raw, client.DryRunAll)
	}
	hook := func(change func(*admissionregistrationv1.ValidatingWebhook)) error {
		conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: inst.Release}, conf); err != nil {
			return err
		}
		change(&conf.Webhooks[0])
		return thief.Update(t.Context(), conf, client.DryRunAll)
	}
	const dedicated = `{"key":"dedicated","effect":"NoSchedule"}`
	const pods, nodes, webhooks = "manager-pods.drawbridge.dev", "manager-nodes.drawbridge.dev", "manager-webhooks.drawbridge.dev"
	for name, tc := range map[string]struct {
		err    error
		policy string
		want   string
	}{
		"a pod's image":      {merge(pod, `{"spec":{"containers":[{"name":"main","image":"evil:1"}]}}`, false), pods, "changes no pod's spec"},
		"a pod's deadline":   {merge(pod, `{"spec":{"activeDeadlineSeconds":1}}`, false), pods, "changes no pod's spec"},
		"a pod's finalizers": {merge(pod, `{"metadata":{"finalizers":["example.com/held"]}}`, false), pods, "changes no pod's finalizers"},
		"a pod's phase":      {merge(pod, `{"status":{"phase":"Failed"}}`, true), pods, "nothing of a pod's status but conditions"},
		"a pod's readiness":  {merge(pod, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, true), pods, "no condition of a pod that says whether"},
		"a node's labels":    {merge(onNode, `{"metadata":{"labels":{"pool":"mine"}}}`, false), nodes, "nothing of a node but"},
		"a node's taints":    {merge(onNode, `{"spec":{"taints":[`+dedicated+`,{"key":"k","effect":"NoExecute"}]}}`, false), nodes, "nothing of a node but"},
		"our taint, to have pods killed": {
			merge(onNode, `{"spec":{"taints":[`+dedicated+`,{"key":"drawbridge.dev/maintenance","effect":"NoExecute"}]}}`, false), nodes, "nothing of a node but",
		},
		"a node without the taint of others": {merge(onNode, `{"spec":{"taints":[]}}`, false), nodes, "nothing of a node but"},
		"ours instead of that of others": {
			merge(onNode, `{"spec":{"taints":[{"key":"drawbridge.dev/maintenance","effect":"NoSchedule"}]}}`, false), nodes, "nothing of a node but",
		},
		"where the API server calls": {hook(func(w *admissionregistrationv1.ValidatingWebhook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://evil.example.com/"), CABundle: w.ClientConfig.CABundle}
		}), webhooks, "nobody but its own"},
		"what the API server calls for": {hook(func(w *admissionregistrationv1.ValidatingWebhook) {
			w.Rules[0].Resources = []string{"secrets"}
			w.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
		}), webhooks, "changes nothing of its webhooks but"},
	} {
		t.Run(name, func(t *testing.T) { mustDeny(t, tc.err, tc.policy, tc.want) })
	}
	// What it does, it may.
	for name, err := range map[string]error{
		"a label of a pod":     merge(pod, `{"metadata":{"labels":{"`+v1alpha1.GuardLabel+`":"closed"}}}`, false),
		"a condition of a pod": merge(pod, `{"status":{"conditions":[{"type":"`+v1alpha1.PodEvacuationRequest+`","status":"True"}]}}`, true),
		"a cordon":             merge(onNode, `{"spec":{"unschedulable":true},"metadata":{"annotations":{"drawbridge.dev/node-cordon":"a"}}}`, false),
		"its taint":            merge(onNode, `{"spec":{"taints":[`+dedicated+`,{"key":"drawbridge.dev/maintenance","effect":"NoSchedule"}]}}`, false),
		"its CA and its path": hook(func(w *admissionregistrationv1.ValidatingWebhook) {
			w.ClientConfig.URL = new(*w.ClientConfig.URL + "/more")
		}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	reserved := builder.EvictionInterceptor("hook.drawbridge.dev").Obj()
	if err := admin.Create(t.Context(), reserved, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("somebody else registers under a name of ours: %v", err)
	}
}

// The label of the guard in a template or in a selector is of no use; whoever writes it is told.
func TestTheGuardsLabelOfOthersIsWarnedOf(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	config := kube.Config()
	heard := &warnings{}
	config.WarningHandler = heard
	c := must(client.New(config, client.Options{Scheme: scheme}))(t)
	deployment := builder.Deployment(namespace, "db").Pods(func(w *builder.PodWrapper) { w.Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed) }).Obj()
	budget := builder.Budget(namespace, "stranger").Selects(v1alpha1.GuardLabel, v1alpha1.GuardClosed).MinAvailable("0").Obj()
	plain := builder.Budget(namespace, "plain").Selects("app", "db").MinAvailable("0").Obj()
	for name, tc := range map[string]struct {
		object client.Object
		want   string
	}{
		"a pod":       {builder.Pod(namespace, "web-0").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(), "is set and removed by Drawbridge alone"},
		"a template":  {deployment, "is set and removed by Drawbridge alone"},
		"a selector":  {budget, "a budget that selects it protects nothing for long"},
		"another one": {plain, ""},
	} {
		heard.said = nil
		if err := c.Create(t.Context(), tc.object, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(heard.said, " "); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: want the warning %q, got %q", name, tc.want, got)
		}
	}
}

// warnings are those of an API server.
type warnings struct{ said []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.said = append(w.said, text) }
