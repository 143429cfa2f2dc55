package app

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults and a namespace are enough": {change: func(*Options) {}},
		"no namespace":                       {func(o *Options) { o.Namespace = "" }, "--namespace is required"},
		"a namespace that is no name":        {func(o *Options) { o.Namespace = "a/b" }, `--namespace: "a/b" is not the name of a namespace`},
		"a port out of range":                {func(o *Options) { o.WebhookPort = 70000 }, "--webhook-port must be between 1 and 65535, not 70000"},
		"an address as a DNS name":           {func(o *Options) { o.WebhookDNSNames = []string{"10.0.0.1"} }, `--webhook-dns-name: "10.0.0.1" is not a DNS name for the webhook certificate`},
		"a Secret without a name":            {func(o *Options) { o.WebhookCertSecret = "" }, `--webhook-cert-secret: "" is not the name of a Secret`},
		"no webhook configuration":           {change: func(o *Options) { o.WebhookConfiguration = "" }},
		"an address without a port":          {func(o *Options) { o.HealthAddr = "localhost" }, `--health-addr: "localhost" is not host:port`},
		"an address that is off":             {change: func(o *Options) { o.MetricsAddr = "0" }},
		"a lease shorter than its renewal":   {func(o *Options) { o.LeaseDuration = o.RenewDeadline }, "--leader-elect-lease-duration (10s) must be longer than --leader-elect-renew-deadline (10s)"},
		"no time between two tries":          {func(o *Options) { o.RetryPeriod = 0 }, "--leader-elect-retry-period must be positive"},
		"no room for the jitter":             {func(o *Options) { o.RetryPeriod = 9 * time.Second }, "--leader-elect-renew-deadline (10s) must be longer than 1.2 times --leader-elect-retry-period (9s)"},
		"no heartbeat deadline":              {func(o *Options) { o.Policy.HeartbeatDeadline = 0 }, "--heartbeat-deadline must be at least 2m0s, not 0s: heartbeats may come once a minute"},
		"a heartbeat deadline nobody keeps":  {func(o *Options) { o.Policy.HeartbeatDeadline = time.Minute }, "--heartbeat-deadline must be at least 2m0s, not 1m0s: heartbeats may come once a minute"},
		"the shortest heartbeat deadline":    {change: func(o *Options) { o.Policy.HeartbeatDeadline = 2 * time.Minute }},
		"a test's heartbeat deadline":        {change: func(o *Options) { o.Policy.HeartbeatDeadline, o.ShortHeartbeatDeadline = time.Second, true }},
		"no deadline in a test":              {func(o *Options) { o.Policy.HeartbeatDeadline, o.ShortHeartbeatDeadline = 0, true }, "--heartbeat-deadline must be at least 1ns, not 0s: heartbeats may come once a minute"},
		"a negative skew":                    {func(o *Options) { o.Policy.ClockSkew = -1 }, "--clock-skew must not be negative, but is -1ns"},
		"no skew at all":                     {change: func(o *Options) { o.Policy.ClockSkew = 0 }},
		"a backoff that shrinks":             {func(o *Options) { o.EvictionBackoffMax = time.Second }, "--eviction-backoff-max (1s) must not be shorter than --eviction-backoff-min (5s)"},
		"a retention shorter than the guard": {func(o *Options) { o.Retention = time.Minute }, "--retention (1m0s) must be 0 (keep forever) or not shorter than --replacement-window (15m0s): the replacement guard knows a moved pod by its finished request"},
		"a retention for ever":               {change: func(o *Options) { o.Retention = 0 }},
		"a short retention without a guard":  {change: func(o *Options) { o.Retention, o.ReplacementGuard = time.Minute, "Evict" }},
		"a negative retention":               {func(o *Options) { o.Retention, o.ReplacementGuard = -time.Minute, "Evict" }, "--retention must not be negative, but is -1m0s"},
		"a negative limit":                   {func(o *Options) { o.NewRequestsPerNode = -1 }, "--new-requests-per-node must be between 0 and 1000, not -1"},
		"no limit":                           {change: func(o *Options) { o.NewRequestsPerNode = 0 }},
		"nobody is limited":                  {change: func(o *Options) { o.LimitedClasses = nil }},
		"a limit for kubectl":                {func(o *Options) { o.LimitedClasses = []string{"kubectl"} }, `--limited-caller-class must be one of cluster-api, cluster-autoscaler, descheduler, drain-helper, gardener, karpenter, managed-upgrade, mco, unknown, not "kubectl"`},
		"a negative limit of the cluster":    {func(o *Options) { o.SurgeClusterLimit = -1 }, "--surge-cluster-limit must not be negative, but is -1"},
		"a negative deadline of surges":      {func(o *Options) { o.SurgeProgressDeadline = -1 }, "--surge-progress-deadline must not be negative, but is -1ns"},
		"a registration with a bad name":     {func(o *Options) { o.SurgeRegistration = "A" }, `--surge-registration: "A" is not the name of a ConfigMap`},
		"an exception that selects nothing":  {func(o *Options) { o.DeschedulerExcept = "a in b" }, `--descheduler-except: unable to parse requirement: found 'b' expected: '('`},
		"a preset with a bad name":           {func(o *Options) { o.EvacuationPresets = []string{"a", "B"} }, `--evacuation-preset: "B" is not the name of a ConfigMap`},
		"no registration":                    {change: func(o *Options) { o.SurgeRegistration = "" }},
		"callers with times of their own":    {change: func(o *Options) { o.CallerSilence = map[string]string{"kubectl": "5m", "unknown": "24h"} }},
		"a class nobody knows":               {func(o *Options) { o.CallerSilence = map[string]string{"kubeclt": "5m"} }, `--caller-silence: "kubeclt" is no class of callers`},
		"a silence that is no time":          {func(o *Options) { o.CallerSilence = map[string]string{"kubectl": "long"} }, `--caller-silence of kubectl must be a duration in whole seconds from 30s to 24h0m0s, not "long"`},
		"a silence too short to be renewed":  {func(o *Options) { o.CallerSilence = map[string]string{"mco": "10s"} }, `--caller-silence of mco must be a duration in whole seconds from 30s to 24h0m0s, not "10s"`},
		"a source nobody knows":              {func(o *Options) { o.Deadlines.Sources = []string{"carpenter"} }, `--deadline-source must be one of karpenter, cluster-api, not "carpenter"`},
		"a taint without a time":             {func(o *Options) { o.Deadlines.Taints = []string{"reclaimed"} }, `--taint-deadline of reclaimed must be a duration from 1s to 168h0m0s, not ""`},
		"a patience of nothing":              {func(o *Options) { o.Deadlines.Patience = map[string]string{"mco": "0s"} }, `--caller-patience of mco must be a duration from 1s to 168h0m0s, not "0s"`},
		"the patience of nobody":             {func(o *Options) { o.Deadlines.Patience = map[string]string{"mcu": "1h"} }, `--caller-patience: "mcu" is no class of callers`},
		"patience for some":                  {change: func(o *Options) { o.Deadlines.Patience = map[string]string{"mco": "1h", "kubectl": "168h"} }},
		"a notice of less than none":         {func(o *Options) { o.Policy.HardNotice = -1 }, "--hard-notice must not be negative, but is -1ns"},
		"no limit of markers":                {func(o *Options) { o.MarkerLimit = 0 }, "--marker-limit must be positive, not 0s"},
		"an unknown guard":                   {func(o *Options) { o.ReplacementGuard = "Maybe" }, `--replacement-guard must be one of NotFound, Evict, TooManyRequests, not "Maybe"`},
		"an unknown log level":               {func(o *Options) { o.LogLevel = "loud" }, `--log-level must be info, debug or a number from 0 to 5, not "loud"`},
		"an unknown log format":              {func(o *Options) { o.LogFormat = "xml" }, `--log-format must be json or console, not "xml"`},
		"a Certificate with a bad name":      {func(o *Options) { o.Operations.CertManagerCertificate = "A" }, `--cert-manager-certificate: "A" is not the name of a Certificate`},
		"no time for a new authority":        {func(o *Options) { o.Operations.CertificateSettle = 0 }, "--certificate-settle must be positive, not 0s"},
		"a log level from a bad name":        {func(o *Options) { o.Operations.LogLevelConfig = "A" }, `--log-level-config: "A" is not the name of a ConfigMap`},
		"an unknown gate":                    {func(o *Options) { o.Operations.Gates.Set = map[string]bool{"X": true} }, `--feature-gates: there is no feature gate "X"; there are EvacuationHooks, EvacuationPresets, EvictionBudgets, Guard, ManagedFailurePolicy, NativeAPI, Surge`},
		"budgets without their gate":         {func(o *Options) { o.Operations.Gates.Set = map[string]bool{"EvictionBudgets": false} }, "--budgets needs the feature gate EvictionBudgets: leave the gate on, or say --budgets=false (value budgets.enabled)"},
		"no budgets that may delete":         {func(o *Options) { o.Budgets.Enabled, o.Budgets.Exhausted = false, true }, "--budgets-exhausted needs --budgets"},
		"native without its gate": {func(o *Options) {
			o.Native.Controllers = "Cluster"
			o.Operations.Gates.Set = map[string]bool{"NativeAPI": false}
		}, "--native-controllers=Cluster needs the feature gate NativeAPI: leave the gate on, or say --native-controllers=Off (value native.controllers)"},
		"a feature without its gate": {func(o *Options) { o.Operations.Gates.Set = map[string]bool{"Surge": false} }, "--surge needs the feature gate Surge: leave the gate on, or say --surge=false (value surge.enabled)"},
		"a gate that is off with its feature": {change: func(o *Options) {
			o.Operations.Gates.Set = map[string]bool{"Surge": false, "Guard": false, "EvacuationPresets": false, "EvacuationHooks": false, "EvictionBudgets": false, "NativeAPI": false}
			o.Surge, o.Guard.Enabled, o.Hooks.Enabled, o.Budgets.Enabled = false, false, false, false
		}},
		"two mistakes are both told": {
			func(o *Options) { o.Namespace, o.LogFormat = "", "xml" },
			"--namespace is required\n--log-format must be json or console, not \"xml\"",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Namespace = "drawbridge-system"
			tc.change(&o)
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheCertificateAlwaysHasLocalhost(t *testing.T) {
	for given, want := range map[string][]string{
		"":                        {"localhost"},
		"localhost":               {"localhost"},
		"a.b.svc":                 {"a.b.svc", "localhost"},
		"localhost,x.example.com": {"localhost", "x.example.com"},
	} {
		o := Options{}
		if given != "" {
			o.WebhookDNSNames = strings.Split(given, ",")
		}
		if diff := cmp.Diff(want, o.dnsNames()); diff != "" {
			t.Errorf("names for %q (-want +got):\n%s", given, diff)
		}
	}
}

// The chart's Deployment must start: every argument is a flag, the values fit, and
// the defaults of the chart are those of the program.
func TestTheChartStartsTheProgram(t *testing.T) {
	objects, err := install.Render(t.Context(), install.Options{Namespace: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatal("the chart has no Deployment with one container")
	}
	o := DefaultOptions()
	flags := pflag.NewFlagSet("drawbridge", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	want := DefaultOptions()
	want.Namespace = "elsewhere"
	want.Operations.LogLevelConfig = "drawbridge-log"
	want.WebhookHost = ""
	want.WebhookDNSNames = []string{"drawbridge-webhook.elsewhere.svc"}
	want.HealthAddr, want.MetricsAddr = ":8081", ":8080"
	if diff := cmp.Diff(want, o, cmpopts.IgnoreFields(Options{}, "Clock", "Registerer", "Logger")); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}
