package app

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/translate"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// allowing is an interceptor that has nothing to do.
type allowing struct{ Name string }

func (allowing) Preflight(context.Context, *corev1.Pod) (preflight.Verdict, error) {
	return preflight.Verdict{Outcome: preflight.Allow}, nil
}

func TestTheWebhookGetsTheOptions(t *testing.T) {
	o := DefaultOptions()
	o.Namespace = "drawbridge-system"
	o.AllowedReservedNames = []string{"a.k8s.io"}
	o.NewRequestsPerNode = 3
	o.LimitedClasses = []string{"descheduler", "unknown"}
	o.ReplacementGuard, o.ReplacementWindow = "Evict", time.Minute
	o.MarkerLimit, o.CallerSilence = time.Hour, map[string]string{"mco": "20m"}
	want := webhook.Config{
		AllowedReserved:    []string{"a.k8s.io"},
		Clock:              o.Clock,
		Namespace:          "drawbridge-system",
		OwnUsername:        "system:serviceaccount:a:b",
		Replacement:        webhook.ReplacementEvict,
		ReplacementWindow:  time.Minute,
		Silence:            map[translate.CallerClass]time.Duration{translate.ClassMCO: 20 * time.Minute},
		MarkerLimit:        time.Hour,
		NewRequestsPerNode: 3,
		LimitedClasses:     []translate.CallerClass{translate.ClassDescheduler, translate.ClassUnknown},
	}
	got := webhookConfig(o, discovered{self: "system:serviceaccount:a:b"})
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(webhook.Config{}, "Log", "Synced")); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestWhoHasASayIsAskedByName(t *testing.T) {
	o := DefaultOptions()
	o.Preflights = map[string]preflight.Interceptor{"vm.example.com": allowing{"option"}}
	ask := o.preflights(func(name string) preflight.Interceptor {
		if name == "nobody.example.com" {
			return nil
		}
		return allowing{"policy"}
	})
	want := map[string]preflight.Interceptor{"vm.example.com": allowing{"option"}, "db.example.com": allowing{"policy"}, "nobody.example.com": nil}
	got := map[string]preflight.Interceptor{}
	for name := range want {
		got[name] = ask(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who is asked (-want +got):\n%s", diff)
	}
}
