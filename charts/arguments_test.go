package charts_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// The manager understands what the chart tells it, and the chart's default values
// are the manager's own.
func TestArgumentsAreTheManagersFlags(t *testing.T) {
	cases := map[string]struct {
		values values
		want   func(*app.Options)
	}{
		"with the default values": {want: func(*app.Options) {}},
		"with other values": {
			values: values{
				"times": values{
					"heartbeatDeadline": "2m", "clockSkew": "2s", "completionGrace": "3s", "startupGrace": "4m",
					"evictionBackoffMin": "6s", "evictionBackoffMax": "7m", "retention": "8h", "markerDebounce": "90s",
				},
				"replacementGuard": values{"mode": "Evict", "window": "11m"},
				"interceptors":     values{"allowedReservedNames": []any{"deployment.apps.k8s.io", "a.k8s.io"}},
				"guard":            values{"enabled": false},
				"maintenance":      values{"enabled": false, "evacuationWait": "5m"},
				"descheduler":      values{"markInProgress": false, "markEvictOnly": true},
				"requests":         values{"podDeletionCost": true},
				"surge":            values{"progressDeadline": "3m", "clusterLimit": 2000000},
				"log":              values{"level": 3, "format": "console"},
				"certificates":     values{"mode": "cert-manager", "settle": "90s"},
				"featureGates":     values{"Guard": false, "Surge": true},
				"metrics":          values{"protected": false, "perRequest": false},
				"webhook":          values{"enabled": false, "excludedNamespaces": []any{}},
				"budgets":          values{"enabled": false},
				"taints":           values{"enabled": true},
			},
			want: func(o *app.Options) {
				o.Policy.HeartbeatDeadline, o.Policy.ClockSkew = 2*time.Minute, 2*time.Second
				o.Policy.CompletionGrace, o.Policy.StartupGrace = 3*time.Second, 4*time.Minute
				o.EvictionBackoffMin, o.EvictionBackoffMax = 6*time.Second, 7*time.Minute
				o.Retention, o.MarkerDebounce = 8*time.Hour, 90*time.Second
				o.ReplacementGuard, o.ReplacementWindow = "Evict", 11*time.Minute
				o.AllowedReservedNames = []string{"deployment.apps.k8s.io", "a.k8s.io"}
				o.Guard.Enabled, o.Guard.ExcludedNamespaces = false, []string{}
				o.Maintenance.Enabled, o.Maintenance.EvacuationWait = false, 5*time.Minute
				o.DeschedulerMark, o.DeschedulerEvictOnly = false, true
				o.PodDeletionCost = true
				o.SurgeProgressDeadline, o.SurgeClusterLimit = 3*time.Minute, 2000000
				o.LogFormat = "console"
				o.Operations.CertManagerCertificate, o.Operations.CertificateSettle = "drawbridge-webhook", 90*time.Second
				o.Operations.Gates.Set = map[string]bool{"Guard": false, "Surge": true}
				o.Operations.MetricsProtected = false
				o.WebhookConfiguration = ""
				o.MetricsPerRequest = false
				o.Budgets.Enabled = false
				o.Taints.Enabled = true
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			container := deploymentOf(t, tc.values).Spec.Template.Spec.Containers[0]
			got := app.DefaultOptions()
			flags := pflag.NewFlagSet("drawbridge", pflag.ContinueOnError)
			got.AddFlags(flags)
			if err := flags.Parse(container.Args); err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			want := app.DefaultOptions()
			want.Namespace = install.DefaultNamespace
			want.WebhookHost, want.HealthAddr, want.MetricsAddr = "", ":8081", ":8080"
			want.WebhookDNSNames = []string{"drawbridge-webhook.drawbridge-system.svc"}
			want.Operations.LogLevelConfig = "drawbridge-log"
			tc.want(&want)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(app.Options{}, "Clock", "Logger", "Registerer", "Level"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}
