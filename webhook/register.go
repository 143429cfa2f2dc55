package webhook

import (
	"errors"
	"net/http"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// Paths under which the webhooks are served; the chart's webhook configuration
// names the same.
const (
	EvictionPath = "/validate-eviction"
	StatusPath   = "/validate-evictionrequest-status"
	ProbePath    = "/probe"
)

// leftOut is where API servers call while the configuration has no path: somebody has
// applied the chart, and the manager has not yet written the path with the token.
const leftOut = "/{$}"

// Paths are the paths by the names of the webhooks in the configuration.
func Paths() map[string]string {
	return map[string]string{
		failurepolicy.EvictionWebhook:                  EvictionPath,
		"evictionrequest-status." + v1alpha1.GroupName: StatusPath,
		"scheduler-deletions." + v1alpha1.GroupName:    PodDeletePath,
		failurepolicy.ProbeWebhook:                     ProbePath,
	}
}

// Registry is the part of controller-runtime's webhook.Server that Register
// needs.
type Registry interface {
	Register(path string, handler http.Handler)
}

var _ Registry = &Server{}

// Register puts the handlers at their paths, behind the authenticator and the body limit.
// A token follows the path; without one there is the path of releases that had none. It
// fails if something of them is missing.
func Register(server Registry, authn *Authenticator, bodies *BodyLimit, eviction *EvictionHandler, status *StatusHandler, probe *ProbeHandler) error {
	if err := errors.Join(authn.validate(), bodies.validate(), status.validate()); err != nil {
		return err
	}
	register(server, EvictionPath, authn, bodies, eviction)
	register(server, StatusPath, authn, bodies, status)
	register(server, ProbePath, authn, bodies, probe)
	// Without a path nobody knows what is asked, nor who asks. A 429 is right for evictions,
	// and the others repeat it, too.
	server.Register(leftOut, authn.rejectAll(eviction))
	return nil
}

// RegisterPodDeletes puts the handler of deletions at its path, behind the authenticator
// and the body limit. It fails if something of them is missing.
func RegisterPodDeletes(server Registry, authn *Authenticator, bodies *BodyLimit, deletes *PodDeleteHandler) error {
	if err := errors.Join(authn.validate(), bodies.validate(), deletes.validate()); err != nil {
		return err
	}
	register(server, PodDeletePath, authn, bodies, deletes)
	return nil
}

func register(server Registry, path string, authn *Authenticator, bodies *BodyLimit, webhook handler) {
	behind := authn.require(path, webhook, bodies.bound(webhook))
	server.Register(path, behind)
	server.Register(path+"/{token}", behind)
}
