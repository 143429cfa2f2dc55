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

// Register puts the handlers at their paths, behind the door. A token follows the path;
// without one there is the path of releases that had none.
func Register(server Registry, door *Door, eviction *EvictionHandler, status *StatusHandler, probe *ProbeHandler) {
	door.register(server, EvictionPath, eviction)
	door.register(server, StatusPath, status)
	door.register(server, ProbePath, probe)
}

// RegisterPodDeletes puts the handler of deletions at its path, behind the door.
func RegisterPodDeletes(server Registry, door *Door, deletes *PodDeleteHandler) {
	door.register(server, PodDeletePath, deletes)
}

func (d *Door) register(server Registry, path string, to hook) {
	server.Register(path, d.lead(path, to))
	server.Register(path+"/{token}", d.lead(path, to))
}
