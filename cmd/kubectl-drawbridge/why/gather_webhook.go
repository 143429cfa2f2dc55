package why

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// gatherWebhook finds out whether the API server calls Drawbridge for the pod and, if
// not, why.
func (g gatherer) gatherWebhook(ctx context.Context, f *Facts) *Webhook {
	var configurations admissionregistrationv1.ValidatingWebhookConfigurationList
	unread := g.List(ctx, &configurations)
	if unread == nil {
		if problem := g.notSelected(ctx, f, configurations.Items); problem != "" {
			return &Webhook{Problem: problem}
		}
	}
	evictions, err := policyclient.NewForConfig(g.REST)
	if err != nil {
		return &Webhook{Unknown: err.Error()}
	}
	// Our own call, which changes nothing and which only the manager can answer.
	switch err := failurepolicy.Prove(ctx, evictions, g.System); {
	case err == nil && unread == nil:
		return &Webhook{}
	case err == nil:
		return &Webhook{Unknown: unread.Error()}
	case apierrors.IsForbidden(err):
		return &Webhook{Unknown: err.Error()}
	default:
		return &Webhook{Problem: "the API server does not reach a manager of Drawbridge, and continues without it: " + err.Error()}
	}
}

// notSelected is why the webhook is not called for evictions of the pod by this user;
// empty if it is, according to the configurations.
func (g gatherer) notSelected(ctx context.Context, f *Facts, configurations []admissionregistrationv1.ValidatingWebhookConfiguration) string {
	var webhook *admissionregistrationv1.ValidatingWebhook
	for i := range configurations {
		for j := range configurations[i].Webhooks {
			if configurations[i].Webhooks[j].Name == failurepolicy.EvictionWebhook {
				webhook = &configurations[i].Webhooks[j]
			}
		}
	}
	if webhook == nil {
		return "there is no webhook configuration of Drawbridge, so the API server asks it about no eviction"
	}
	selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
	if err == nil && webhook.NamespaceSelector != nil && f.Namespace != nil && !selector.Matches(labels.Set(f.Namespace.Labels)) {
		return fmt.Sprintf("namespace %s is excluded from Drawbridge's webhook (webhook.excludedNamespaces)", f.Namespace.Name)
	}
	user, err := g.WhoAmI(ctx)
	if err != nil {
		return "" // Then exemptions are unknown.
	}
	me := append([]string{user.Username}, user.Groups...)
	for _, condition := range webhook.MatchConditions {
		exempt := func(name string) bool { return strings.Contains(condition.Expression, strconv.Quote(name)) }
		if i := slices.IndexFunc(me, exempt); i >= 0 {
			return fmt.Sprintf("Drawbridge's webhook is not asked about calls of %s (its match condition %s); others may get another answer", me[i], condition.Name)
		}
	}
	return ""
}
