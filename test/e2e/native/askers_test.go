//go:build unix

package native

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Whoever of Drawbridge asks for a pod with native responders asks natively in a name of its own, and
// takes that back.
func TestWhoAsksOnBehalfOfNodes(t *testing.T) {
	shareManager(t)
	taint := corev1.Taint{Key: "example.com/going", Effect: corev1.TaintEffectNoExecute}
	taints := func(t *testing.T, node string) {
		changeNode(t, node, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) })
	}
	maintenance := func(name, node string) *v1alpha1.NodeMaintenance {
		return builder.NodeMaintenance(name+node).Term(corev1.LabelHostname, corev1.NodeSelectorOpIn, node).Drain().Reason("new kernel").Obj()
	}
	for name, tc := range map[string]struct {
		requester         string
		begin, end, again func(*testing.T, string)
		tolerations       []corev1.Toleration
	}{
		"a NodeMaintenance": {
			requester: "NAME.node-maintenance.drawbridge.dev/requester",
			begin:     func(t *testing.T, node string) { create(t, maintenance("native-", node)) },
			again:     func(t *testing.T, node string) { create(t, maintenance("next-", node)) },
			end: func(t *testing.T, node string) {
				if err := admin.Delete(t.Context(), maintenance("native-", node)); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a taint": {
			requester: "drawbridge.dev/taint-eviction",
			begin:     taints, again: taints,
			end: func(t *testing.T, node string) {
				changeNode(t, node, func(n *corev1.Node) {
					n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
				})
			},
			tolerations: []corev1.Toleration{{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect, TolerationSeconds: new(int64(3600))}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, node := placed(t)
			responder := in(namespace, migrate)
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(responder).Change(func(p *corev1.Pod) {
				p.Spec.Tolerations = append(p.Spec.Tolerations, tc.tolerations...)
			}).Obj())
			tc.begin(t, node)
			e := waitEviction(t, pod, "in the hands of its responder", turnOf(responder))
			if diff := cmp.Diff([]lifecyclev1alpha1.Requester{{Name: strings.ReplaceAll(tc.requester, "NAME", "native-"+node), Intent: lifecyclev1alpha1.RequesterIntentEviction}}, e.Status.Requesters); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
			tc.end(t, node)
			waitEviction(t, pod, "canceled", isCanceled)
			lives(t, pod)
			tc.again(t, node)
			waitEviction(t, pod, "in the hands of its responder again", turnOf(responder))
			completes(t, pod, responder)
			gone(t, pod)
		})
	}
}

// The guard protects a pod with native responders until they have had their turns.
func TestTheGuardKnowsNativeResponders(t *testing.T) {
	policy := func(policy admissionregistrationv1.FailurePolicyType) {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		waiting.Eventually(t, "the failure policy to be "+string(policy), func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKey{Name: inst.Release}, config); err != nil {
				return err
			}
			config.Webhooks[0].FailurePolicy = &policy
			config.Annotations[failurepolicy.WantedAnnotation] = string(policy)
			return admin.Update(ctx, config)
		})
	}
	m := inst.ForTest(t, manager.Options{})
	policy(admissionregistrationv1.Ignore)
	namespace, node := placed(t)
	name := in(namespace, migrate)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(name).Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj())
	waitGuarded(t, pod, false)
	waitGuarded(t, plain, false)
	wants(t, pod)
	waitEviction(t, pod, "in the hands of its responder", turnOf(name))
	waitGuarded(t, pod, true)
	// It protects it in an outage of ours.
	m.Kill()
	outage := func(ctx context.Context, pod *corev1.Pod) error {
		call := cluster.Eviction(pod)
		call.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		return admin.SubResource("eviction").Create(ctx, pod.DeepCopy(), call)
	}
	waiting.Eventually(t, "the API server to ignore the webhook", func(ctx context.Context) error { return outage(ctx, plain) })
	if err := outage(t.Context(), pod); !apierrors.IsTooManyRequests(err) {
		t.Errorf("in an outage: %v", err)
	}
	m = inst.ForTest(t, manager.Options{})
	completes(t, pod, name)
	gone(t, pod)
	m.StopFor(t)
	policy(admissionregistrationv1.Fail)
	waiting.Eventually(t, "the API server to need the webhook again", func(ctx context.Context) error {
		if err := outage(ctx, plain); !apierrors.IsInternalError(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
}

// waitGuarded waits until the guard of a pod is closed, or open.
func waitGuarded(t *testing.T, pod *corev1.Pod, closed bool) {
	t.Helper()
	waiting.Eventually(t, fmt.Sprintf("the guard of pod %s to be closed: %t", pod.Name, closed), func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if got := now.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed; got != closed {
			return fmt.Errorf("labels %v", now.Labels)
		}
		return nil
	})
}

// changeNode updates a node.
func changeNode(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	waiting.Eventually(t, "node "+name+" to be changed", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		change(node)
		return admin.Update(ctx, node)
	})
}
