package refusals

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/pdb/guard"
)

// dryRunRequester is the requester of requests that are not stored.
const dryRunRequester = "dry-run.users." + v1alpha1.GroupName

// TryRequest makes a dry run of a request for the pod, as the webhook writes it: if the
// pod's labels are refused, without them. It returns nil if the request would be taken; an
// error says why that is not known.
func TryRequest(ctx context.Context, c client.Client, pod *corev1.Pod) (*Refusal, error) {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: string(pod.UID), Labels: pods.CopiedLabels(pod.Labels)}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: pod.Name, UID: pod.UID}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: dryRunRequester}}
	found, err := try(ctx, c, refused.Request, er.DeepCopy())
	if (found != nil || err != nil) && len(er.Labels) > 0 {
		er.Labels = nil
		return try(ctx, c, refused.Request, er)
	}
	return found, err
}

// MadeUp is a pod that does not exist, for a request in a namespace.
func MadeUp(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "drawbridge-dry-run", UID: types.UID("00000000-0000-4000-8000-000000000000")}}
}

// TryGuardBudget makes a dry run of the guard's budget of a namespace, as the guard makes
// it. It returns the same as TryRequest.
func TryGuardBudget(ctx context.Context, c client.Client, namespace string) (*Refusal, error) {
	return try(ctx, c, refused.GuardBudget, guard.NewBudget(namespace, nil))
}

// try makes a dry run of making an object. It is made as the user, so what the user may
// not do says nothing about Drawbridge.
func try(ctx context.Context, c client.Client, write refused.Write, object client.Object) (*Refusal, error) {
	err := c.Create(ctx, object, client.DryRunAll)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil, nil //nolint:nilnil // It would be taken.
	}
	switch cause, _ := refused.Of(err); cause {
	case refused.Quota, refused.Policy, refused.Webhook, refused.NamespaceTerminating:
		if !ours(err.Error()) {
			return &Refusal{Write: write, Cause: cause, Words: err.Error()}, nil
		}
	}
	return nil, err //nolint:wrapcheck // It says which object it is.
}

// ours reports whether a policy of Drawbridge's own refuses: those are about the user.
func ours(words string) bool {
	_, policy, ok := strings.Cut(words, "ValidatingAdmissionPolicy '")
	name, _, _ := strings.Cut(policy, "'")
	return ok && strings.HasSuffix(name, "."+v1alpha1.GroupName)
}
