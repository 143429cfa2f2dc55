//go:build unix

package e2e

import (
	"context"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/vmcrds"
)

// withPlatforms are the chart's values for the platforms of installPlatforms:
// KubeVirt by its preset, everything else by policies of the tests.
var withPlatforms = map[string]any{
	"vm": map[string]any{"kubevirt": map[string]any{"enabled": true}},
	"policies": map[string]any{"rules": []any{
		// For tests with the policy kubevirt-with-migrations.
		rule("kubevirt.io", "virtualmachineinstancemigrations", "create"),
		rule("hyper.example.com", "guests", "get", "list", "watch"),
		rule("hyper.example.com", "guests/status", "patch"),
		rule("late.example.com", "boxes", "get", "list", "watch"),
	}},
}

func rule(group, resource string, verbs ...any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}

// installPlatforms installs the kinds of KubeVirt and of an invented platform.
func installPlatforms(ctx context.Context) error {
	return vmcrds.Install(ctx, admin, append(vmcrds.KubeVirt(), vmcrds.Invented()...))
}

// withPresets gives a manager the presets of the chart.
func withPresets(change func(*app.Options)) func(*app.Options) {
	return func(o *app.Options) {
		o.EvacuationPresets = []string{inst.Release + "-kubevirt"}
		if change != nil {
			change(o)
		}
	}
}
