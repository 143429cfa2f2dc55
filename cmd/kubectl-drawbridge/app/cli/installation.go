package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/internal/features"
)

// Installation is how the manager was installed, as its Deployment says.
type Installation struct {
	// Unread is why nothing is known; empty if the Deployment was read.
	Unread string
	// Name of the Deployment, and how many of its replicas are ready and wanted.
	Name          string
	Ready, Wanted int32
	// MaintenanceOff: the controllers of NodeMaintenances are switched off.
	MaintenanceOff bool
	// BudgetsOff: the manager does not decide about EvictionBudgets.
	BudgetsOff bool
	// NativeOff: the manager keeps out of lifecycle.k8s.io. Native: it does not, or that is not
	// known, and the cluster serves that API, so that native responders of pods are interceptors.
	NativeOff, Native bool
	// NativeMode is native.controllers; empty if it is not known. NativeState is the name of the
	// ConfigMap that says who moves native Evictions, if it is known.
	NativeMode  charge.Mode
	NativeState string
	// Version of the manager, and Chart of what it was installed with; empty if the
	// Deployment does not say.
	Version, Chart string
	// Wait is maintenance.evacuationWait; nil if it is not known.
	Wait *time.Duration
}

// Installed reads the Deployment. It is no error if that fails: Unread has the reason.
func (o *Options) Installed(ctx context.Context, c *Connection) Installation {
	found := o.deployed(ctx, c)
	found.Native = !found.NativeOff && NativeServed(c.RESTMapper())
	return found
}

func (o *Options) deployed(ctx context.Context, c *Connection) Installation {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(o.System), client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
		return Installation{Unread: fmt.Sprintf("the Deployment of Drawbridge could not be read (%v)", err)}
	}
	for i := range list.Items {
		for _, container := range list.Items[i].Spec.Template.Spec.Containers {
			if container.Name == "manager" {
				return installationOf(&list.Items[i], container.Args)
			}
		}
	}
	return Installation{Unread: fmt.Sprintf("there is no Deployment of Drawbridge in namespace %s: see --drawbridge-namespace", o.System)}
}

func installationOf(d *appsv1.Deployment, args []string) Installation {
	manager, chart := VersionsOf(d)
	found := Installation{Name: d.Name, Version: manager, Chart: chart, Ready: d.Status.ReadyReplicas, Wanted: ptr.Deref(d.Spec.Replicas, 1)}
	gateOff := false
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch name {
		case "maintenance":
			found.MaintenanceOff = value == "false"
		case "native-controllers":
			found.NativeMode = charge.Mode(value)
		case "native-state":
			found.NativeState = value
		case "feature-gates":
			gateOff = slices.Contains(strings.Split(value, ","), NativeGateOff)
		case "budgets":
			found.BudgetsOff = value == "false"
		case "maintenance-evacuation-wait":
			if wait, err := time.ParseDuration(value); err == nil {
				found.Wait = &wait
			}
		}
	}
	found.NativeOff = gateOff || found.NativeMode == charge.Off
	return found
}

// NativeGateOff is the setting of the manager's feature gates that counts as
// native.controllers=Off.
const NativeGateOff = string(features.NativeAPI) + "=false"

// VersionLabel is on all objects of the chart, and on those of install.yaml.
const VersionLabel = "app.kubernetes.io/version"

// VersionsOf reads the versions of the manager and of the chart from the Deployment. The
// tag of the image is what runs, if it is a version. Without it the manager is the chart's.
func VersionsOf(d *appsv1.Deployment) (manager, chart string) {
	released := d.Labels[VersionLabel]
	manager, chart = released, released
	if name, ok := strings.CutPrefix(d.Labels["helm.sh/chart"], "drawbridge-"); ok {
		chart = name
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if tag := tagOf(container.Image); container.Name == "manager" && tag != "" {
			if _, err := version.ParseGeneric(tag); err == nil {
				manager = tag
			}
		}
	}
	return manager, chart
}

// tagOf is the tag of an image, HOST:PORT/NAME:TAG@DIGEST; empty if it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

// NobodyWorks says why no manager may process a NodeMaintenance, and what to do.
func (i Installation) NobodyWorks(system string) string {
	switch {
	case i.Unread != "":
		return i.Unread + ". See whether a manager runs: kubectl drawbridge doctor"
	case i.MaintenanceOff:
		return "the NodeMaintenance controller is disabled (maintenance.enabled=false). Use kubectl drain, which waits for the same interceptors, or enable it"
	case i.Ready == 0:
		return fmt.Sprintf("no replica of Drawbridge is ready (0 of %d): kubectl -n %s get pods. The drain begins when one is", i.Wanted, system)
	default:
		return fmt.Sprintf("%d of %d replicas of Drawbridge are ready; if that does not change, see kubectl drawbridge doctor and the leader's log: kubectl -n %s logs deployment/%s", i.Ready, i.Wanted, system, i.Name)
	}
}
