package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// kubeletUser is the account of kwok, which plays the kubelets.
const kubeletUser = "kwok"

// restrainKubelet lets the fake kubelet delete only pods that are terminating. kwok
// deletes by name and without the UID, on a busy machine once more when the successor
// has the name already; a kubelet never ends a pod that nobody has deleted.
func (c *Cluster) restrainKubelet(ctx context.Context) error {
	// Not a name of ours: tests of a removal look for those.
	const name = "fake-kubelet.example.com"
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "kubelet", Expression: fmt.Sprintf("request.userInfo.username == %q", kubeletUser),
			}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "has(oldObject.metadata.deletionTimestamp)",
				Message:    "a kubelet deletes only pods that are terminating",
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	admission := c.client.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("restrain the fake kubelet: %w", err)
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("restrain the fake kubelet: %w", err)
	}
	return nil
}

const (
	kwokAttempts = 5
	// kwokPatience is how long kwok may take to make a pod Ready, which takes it a second.
	kwokPatience = 30 * time.Second
)

// RestartKwok restarts kwok while there are pods. It then meets pods and nodes at the same
// time and makes its CEL environments in two goroutines, which now and then ends it
// ("concurrent map writes") or loses a pod. So it has to prove itself by a new pod, is started
// again if it does not, and then hears of all pods once more.
func (c *Cluster) RestartKwok(ctx context.Context) error {
	var last error
	for range kwokAttempts {
		if last = c.restartKwok(ctx); last == nil || ctx.Err() != nil {
			return last
		}
		c.options.Logf("cluster: kwok did not start well: %v", last)
	}
	return last
}

func (c *Cluster) restartKwok(ctx context.Context) (err error) {
	kwok := c.components[Kwok]
	if err := kwok.Restart(ctx); err != nil {
		return err
	}
	pods := c.client.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kwok-works-"},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a pod for kwok: %w", err)
	}
	defer func() {
		err = errors.Join(err, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}()
	soon, cancel := context.WithTimeout(ctx, kwokPatience)
	defer cancel()
	err = waiting.For(soon, "kwok to run a pod", func(ctx context.Context) error {
		if err := kwok.notRunning(); err != nil {
			return waiting.InVain(err)
		}
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.touchPods(ctx)
}

// touchPods changes an annotation of every pod, which makes an event of each.
func (c *Cluster) touchPods(ctx context.Context) error {
	all, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, realClock.Now().UnixNano())
	for _, pod := range all.Items {
		_, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("touch pod %s: %w", pod.Name, err)
		}
	}
	return nil
}
