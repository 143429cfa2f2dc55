package webhook

import "net/http"

// Paths under which the webhooks are served; the chart's webhook configuration
// names the same.
const (
	EvictionPath = "/validate-eviction"
	StatusPath   = "/validate-evictionrequest-status"
	ProbePath    = "/probe"
)

// Registry is the part of controller-runtime's webhook.Server that Register
// needs.
type Registry interface {
	Register(path string, handler http.Handler)
}

// Register puts the handlers at their paths.
func Register(server Registry, eviction *EvictionHandler, status *StatusHandler, probe *ProbeHandler) {
	server.Register(EvictionPath, eviction)
	server.Register(StatusPath, status)
	server.Register(ProbePath, probe)
}
