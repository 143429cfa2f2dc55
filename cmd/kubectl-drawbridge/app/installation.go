package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installation is what the Deployment of the manager says of how it was installed.
type installation struct {
	// unread is why nothing is known; empty if the Deployment was read.
	unread string
	// name of the Deployment, and how many of its replicas are ready and wanted.
	name          string
	ready, wanted int32
	// maintenanceOff: the controllers of NodeMaintenances are switched off.
	maintenanceOff bool
	// wait is maintenance.evacuationWait; nil if it is not known.
	wait *time.Duration
}

// installed reads the Deployment. That it cannot be read is no error: it is said where
// it matters.
func (o *Options) installed(ctx context.Context, c *connection) installation {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(o.System), client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
		return installation{unread: fmt.Sprintf("the Deployment of Drawbridge could not be read (%v)", err)}
	}
	for i := range list.Items {
		for _, container := range list.Items[i].Spec.Template.Spec.Containers {
			if container.Name == "manager" {
				return installationOf(&list.Items[i], container.Args)
			}
		}
	}
	return installation{unread: fmt.Sprintf("there is no Deployment of Drawbridge in namespace %s: see --drawbridge-namespace", o.System)}
}

func installationOf(d *appsv1.Deployment, args []string) installation {
	found := installation{name: d.Name, ready: d.Status.ReadyReplicas, wanted: ptr.Deref(d.Spec.Replicas, 1)}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch name {
		case "maintenance":
			found.maintenanceOff = value == "false"
		case "maintenance-evacuation-wait":
			if wait, err := time.ParseDuration(value); err == nil {
				found.wait = &wait
			}
		}
	}
	return found
}

// nobodyWorks is why nobody may look at a NodeMaintenance, and what to do.
func (i installation) nobodyWorks(system string) string {
	switch {
	case i.unread != "":
		return i.unread + ". See whether a manager runs: kubectl drawbridge doctor"
	case i.maintenanceOff:
		return "the controllers of NodeMaintenances are switched off (maintenance.enabled=false). Drain with kubectl drain, past the same interceptors, or switch them on"
	case i.ready == 0:
		return fmt.Sprintf("no replica of Drawbridge is ready (0 of %d): kubectl -n %s get pods. The drain begins when one is", i.wanted, system)
	default:
		return fmt.Sprintf("%d of %d replicas of Drawbridge are ready; if that does not change, see kubectl drawbridge doctor and the leader's log: kubectl -n %s logs deployment/%s", i.ready, i.wanted, system, i.name)
	}
}
