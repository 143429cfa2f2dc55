package webhook

import (
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// Call is one call of pods/eviction.
type Call struct {
	Namespace string
	Pod       string
	// UID and ResourceVersion are the preconditions of the call; empty means that
	// it is by name alone.
	UID             types.UID
	ResourceVersion string
	// DryRun: nothing may change because of this call.
	DryRun bool
	// GracePeriodSeconds is the termination grace period asked for, if any.
	GracePeriodSeconds *int64
	Caller             translate.Caller
	// Username as authenticated.
	Username string
}

// byName reports whether the call identifies the pod only by name.
func (c Call) byName() bool { return c.UID == "" && c.ResourceVersion == "" }

// evictionBody is what we read of a policy Eviction. Versions v1 and v1beta1
// have the same fields, so one type decodes both, without the bulk of the
// metadata.
type evictionBody struct {
	Metadata struct {
		Name          string            `json:"name"`
		Namespace     string            `json:"namespace"`
		Annotations   map[string]string `json:"annotations"`
		ManagedFields []struct {
			Manager string `json:"manager"`
		} `json:"managedFields"`
	} `json:"metadata"`
	DeleteOptions *metav1.DeleteOptions `json:"deleteOptions"`
}

// evictionReview is what we read of the review of an eviction, in one pass over the
// body: a drain makes hundreds of calls, again and again.
type evictionReview struct {
	UID       types.UID               `json:"uid"`
	Kind      metav1.GroupVersionKind `json:"kind"`
	Name      string                  `json:"name"`
	Namespace string                  `json:"namespace"`
	UserInfo  struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"userInfo"`
	Object evictionBody `json:"object"`
	DryRun *bool        `json:"dryRun"`
}

// manager is the first field manager, which is the front of the User-Agent.
func (b *evictionBody) manager() string {
	for _, f := range b.Metadata.ManagedFields {
		if f.Manager != "" {
			return f.Manager
		}
	}
	return ""
}

// decodeCall reads the call out of an admission request.
func decodeCall(request *evictionReview) (Call, error) {
	kind := request.Kind
	if kind.Group != policyv1.GroupName || kind.Kind != "Eviction" || (kind.Version != "v1" && kind.Version != "v1beta1") {
		return Call{}, fmt.Errorf("%w: kind %s is no Eviction", errNotReview, kind.String())
	}
	body := &request.Object
	call := Call{
		// The object's own namespace is empty on old servers, the request's never is.
		Namespace: firstOf(request.Namespace, body.Metadata.Namespace),
		Pod:       firstOf(request.Name, body.Metadata.Name),
		DryRun:    request.DryRun != nil && *request.DryRun,
		Username:  request.UserInfo.Username,
	}
	if call.Namespace == "" || call.Pod == "" {
		return Call{}, fmt.Errorf("%w: eviction without namespace or name", errNotReview)
	}
	if options := body.DeleteOptions; options != nil {
		// kubectl's --dry-run=server comes only here (callers.md, section 1 item 4).
		call.DryRun = call.DryRun || slices.Contains(options.DryRun, metav1.DryRunAll)
		if p := options.Preconditions; p != nil {
			call.UID, call.ResourceVersion = deref(p.UID), deref(p.ResourceVersion)
		}
		// A negative period means "the pod's own", as none does.
		if g := options.GracePeriodSeconds; g != nil && *g >= 0 {
			call.GracePeriodSeconds = g
		}
	}
	call.Caller = translate.Recognize(translate.CallerInput{
		Username:    call.Username,
		Extra:       request.UserInfo.Extra,
		Manager:     body.manager(),
		Annotations: body.Metadata.Annotations,
	})
	return call, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
