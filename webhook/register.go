package webhook

import (
	"errors"
	"net/http"
)

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

var _ Registry = &Server{}

// Register puts the handlers at their paths, behind the door. A token follows the path;
// without one there is the path of releases that had none. It fails if something of them
// is missing.
func Register(server Registry, door *Door, eviction *EvictionHandler, status *StatusHandler, probe *ProbeHandler) error {
	if err := errors.Join(door.validate(), status.validate()); err != nil {
		return err
	}
	door.register(server, EvictionPath, eviction)
	door.register(server, StatusPath, status)
	door.register(server, ProbePath, probe)
	return nil
}

// RegisterPodDeletes puts the handler of deletions at its path, behind the door. It fails
// if something of them is missing.
func RegisterPodDeletes(server Registry, door *Door, deletes *PodDeleteHandler) error {
	if err := errors.Join(door.validate(), deletes.validate()); err != nil {
		return err
	}
	door.register(server, PodDeletePath, deletes)
	return nil
}

func (d *Door) register(server Registry, path string, to hook) {
	server.Register(path, d.lead(path, to))
	server.Register(path+"/{token}", d.lead(path, to))
}
