//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// withPlatforms are the chart's values for the platforms of installPlatforms: KubeVirt by
// its preset, everything else by policies of the tests. Hooks may do all that they can, and
// wait for the kinds of the recipes.
// Evictions by firefighters pass by the webhook.
var withPlatforms = map[string]any{
	// The machine that runs the tests may be busier than any cluster: a call that is cut off
	// ends a drain.
	"webhook": map[string]any{"breakGlassGroups": []any{firefighters}, "timeoutSeconds": 30},
	"taints":  map[string]any{"enabled": true},
	"budgets": map[string]any{"exhausted": map[string]any{"enabled": true}},
	"vm":      map[string]any{"kubevirt": map[string]any{"enabled": true}},
	"hooks": map[string]any{
		"exec": map[string]any{"enabled": true},
		"http": map[string]any{"secrets": map[string]any{"enabled": true}},
		"wait": map[string]any{"rules": []any{
			rule("longhorn.io", "instancemanagers", "list", "watch"),
			rule("agones.dev", "gameservers", "list", "watch"),
		}},
	},
	"policies": map[string]any{"rules": []any{
		rule("hyper.example.com", "guests", "get", "list", "watch"),
		rule("hyper.example.com", "guests/status", "patch"),
		rule("late.example.com", "boxes", "get", "list", "watch"),
	}},
}

// firefighters are the group of those who may break the glass.
const firefighters = "firefighters"

func rule(group, resource string, verbs ...any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}

// installPlatforms installs the kinds of KubeVirt and of an invented platform.
func installPlatforms(ctx context.Context) error {
	if err := vmcrds.Install(ctx, admin, append(vmcrds.KubeVirt(), vmcrds.Invented()...)); err != nil {
		return err
	}
	var err error
	for account, into := range map[string]*client.Client{vmcrds.APIAccount: &virtAPI, vmcrds.HandlerAccount: &virtHandler} {
		if *into, err = clientOf(account); err != nil {
			return err
		}
	}
	// It serves as long as the process.
	if err := (&vmcrds.API{Client: virtAPI}).Start(ctx, admin); err != nil {
		return err
	}
	config := vmcrds.New(vmcrds.Config, vmcrds.SystemNamespace, "kubevirt", nil)
	if err := admin.Create(ctx, config); err != nil {
		return fmt.Errorf("create the KubeVirt object: %w", err)
	}
	vmcrds.Set(config, "status.phase", "Deployed")
	if err := admin.Status().Update(ctx, config); err != nil {
		return fmt.Errorf("deploy KubeVirt: %w", err)
	}
	return nil
}

// virtAPI and virtHandler are clients with KubeVirt's accounts, whose writes to the
// status of machines count.
var virtAPI, virtHandler client.Client

// clientOf is a client of an account that may do everything.
func clientOf(account string) (client.Client, error) {
	config, err := kube.ConfigFor(account, "system:masters")
	if err != nil {
		return nil, fmt.Errorf("make credentials of %s: %w", account, err)
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// withPresets gives a manager the presets of the chart, and lets hooks run commands, and
// reach the servers of the tests.
func withPresets(change func(*app.Options)) func(*app.Options) {
	return func(o *app.Options) {
		o.EvacuationPresets = []string{inst.Release + "-kubevirt"}
		o.DeschedulerExcept = "kubevirt.io=virt-launcher"
		o.Hooks.Exec, o.Hooks.Reachable = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		if change != nil {
			change(o)
		}
	}
}
