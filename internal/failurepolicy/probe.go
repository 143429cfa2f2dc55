package failurepolicy

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
)

// tokens in a path (internal/certs).
var tokens = regexp.MustCompile("/[0-9a-f]{64}")

// errNotCalled: the webhook was not called for the eviction.
var errNotCalled = errors.New("the API server did not call the webhook " + ProbeWebhook)

// Prove evicts, as a dry run, a pod that does not exist, in our own namespace. It
// returns nil when the call reached a manager of Drawbridge and its answer came
// back, and otherwise what happened instead. Nothing changes in the cluster.
//
// One API server answers. Others of a control plane with several get the same
// configuration, authority and policy together.
func Prove(ctx context.Context, evictions policyclient.EvictionsGetter, namespace string) error {
	return read(evictions.Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: ProbePod},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}))
}

// read tells from the answer to the eviction whether it reached us.
func read(answer error) error {
	switch {
	case answer == nil, apierrors.IsNotFound(answer):
		return errNotCalled
	case strings.Contains(answer.Error(), ProbeAnswer):
		return nil
	case apierrors.IsForbidden(answer):
		// Wrapped, because users may lack the permission, and are told so. Then no webhook
		// was called, so the text has no path.
		return fmt.Errorf("evict %s as a dry run: %w", ProbePod, answer)
	}
	// Not wrapped: nothing inspects it, and the text may have the path of the webhook with
	// the probe's token, which must not be logged.
	return fmt.Errorf("evict %s as a dry run: %s", ProbePod, tokens.ReplaceAllString(answer.Error(), "/..."))
}
