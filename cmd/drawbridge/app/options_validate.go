package app

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// Validate returns everything that is wrong with the options, as one error.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	check(o.Namespace != "", "--namespace is required")
	check(o.Namespace == "" || len(validation.IsDNS1123Label(o.Namespace)) == 0, "--namespace: %q is not the name of a namespace", o.Namespace)
	check(o.WebhookPort >= 1 && o.WebhookPort <= 65535, "--webhook-port must be between 1 and 65535, not %d", o.WebhookPort)
	if err := certs.ValidateDNSNames(o.dnsNames()); err != nil {
		errs = append(errs, fmt.Errorf("--webhook-dns-name: %w", err))
	}
	check(len(validation.IsDNS1123Subdomain(o.WebhookCertSecret)) == 0, "--webhook-cert-secret: %q is not the name of a Secret", o.WebhookCertSecret)
	check(o.WebhookConfiguration == "" || len(validation.IsDNS1123Subdomain(o.WebhookConfiguration)) == 0, "--webhook-configuration: %q is not the name of a ValidatingWebhookConfiguration", o.WebhookConfiguration)
	for _, addr := range []struct{ flag, value string }{{"--health-addr", o.HealthAddr}, {"--metrics-addr", o.MetricsAddr}, {"--pprof-addr", o.PprofAddr}} {
		if addr.value == "" || addr.value == "0" {
			continue
		}
		_, _, err := net.SplitHostPort(addr.value)
		check(err == nil, "%s: %q is not host:port", addr.flag, addr.value)
	}

	check(o.LeaseDuration > o.RenewDeadline, "--leader-elect-lease-duration (%s) must be longer than --leader-elect-renew-deadline (%s)", o.LeaseDuration, o.RenewDeadline)
	// client-go (tools/leaderelection) demands room for its jitter of 1.2.
	check(o.RenewDeadline > o.RetryPeriod*6/5, "--leader-elect-renew-deadline (%s) must be longer than 1.2 times --leader-elect-retry-period (%s)", o.RenewDeadline, o.RetryPeriod)
	check(o.RetryPeriod > 0, "--leader-elect-retry-period must be positive")

	shortest := minHeartbeatDeadline
	if o.ShortHeartbeatDeadline {
		shortest = time.Nanosecond
	}
	check(o.Policy.HeartbeatDeadline >= shortest, "--heartbeat-deadline must be at least %s, not %s: heartbeats may come once a minute", shortest, o.Policy.HeartbeatDeadline)
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--eviction-backoff-min", o.EvictionBackoffMin},
		{"--replacement-window", o.ReplacementWindow},
		{"--marker-limit", o.MarkerLimit},
		{"--shutdown-timeout", o.ShutdownTimeout},
	} {
		check(d.value > 0, "%s must be positive, not %s", d.flag, d.value)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--clock-skew", o.Policy.ClockSkew},
		{"--completion-grace", o.Policy.CompletionGrace},
		{"--startup-grace", o.Policy.StartupGrace},
		{"--deadline-margin", o.Policy.DeadlineMargin},
		{"--hard-notice", o.Policy.HardNotice},
		{"--retention", o.Retention},
		{"--marker-debounce", o.MarkerDebounce},
		{"--shutdown-delay", o.ShutdownDelay},
		{"--surge-progress-deadline", o.SurgeProgressDeadline},
	} {
		check(d.value >= 0, "%s must not be negative, but is %s", d.flag, d.value)
	}
	check(o.EvictionBackoffMax >= o.EvictionBackoffMin, "--eviction-backoff-max (%s) must not be shorter than --eviction-backoff-min (%s)", o.EvictionBackoffMax, o.EvictionBackoffMin)
	check(o.Retention == 0 || o.ReplacementGuard == string(webhook.ReplacementEvict) || o.Retention >= o.ReplacementWindow,
		"--retention (%s) must be 0 (keep forever) or not shorter than --replacement-window (%s): the replacement guard knows a moved pod by its finished request", o.Retention, o.ReplacementWindow)
	check(o.NewRequestsPerNode >= 0 && o.NewRequestsPerNode <= maxNewRequestsPerNode, "--new-requests-per-node must be between 0 and %d, not %d", maxNewRequestsPerNode, o.NewRequestsPerNode)
	for _, class := range o.LimitedClasses {
		check(slices.Contains(limitable(), class), "--limited-caller-class must be one of %s, not %q", strings.Join(limitable(), ", "), class)
	}
	if _, err := labels.Parse(o.DeschedulerExcept); err != nil {
		errs = append(errs, fmt.Errorf("--descheduler-except: %w", err))
	}
	for _, preset := range o.EvacuationPresets {
		check(len(validation.IsDNS1123Subdomain(preset)) == 0, "--evacuation-preset: %q is not the name of a ConfigMap", preset)
	}
	check(!o.Budgets.Exhausted || o.Budgets.Enabled, "--budgets-exhausted needs --budgets")
	check(o.SurgeClusterLimit >= 0, "--surge-cluster-limit must not be negative, but is %d", o.SurgeClusterLimit)
	check(o.SurgeRegistration == "" || len(validation.IsDNS1123Subdomain(o.SurgeRegistration)) == 0, "--surge-registration: %q is not the name of a ConfigMap", o.SurgeRegistration)
	check(slices.Contains(replacementGuards, o.ReplacementGuard), "--replacement-guard must be one of %s, not %q", strings.Join(replacementGuards, ", "), o.ReplacementGuard)
	_, problems := o.callerSilence()
	for _, problem := range problems {
		check(false, "%s", problem)
	}
	o.Guard.validate(check)
	o.Preemption.validate(o.WebhookPort, check)
	o.WebhookClients.validate(o, check)
	check(!o.Preemption.Enabled || o.Preemption.ClientCA == "" || o.Operations.LogLevelConfig == "" || o.Preemption.clientCA().Namespace != o.Namespace,
		"--preemption-client-ca is in the manager's own namespace %q, of which only --log-level-config is read", o.Namespace)
	o.Deadlines.validate(check)
	o.Native.validate(check)
	o.Maintenance.validate(check)
	o.Hooks.validate(check)
	o.Operations.validate(check)
	o.validateGates(check)

	if _, _, err := newLogger(o.LogLevel, o.LogFormat); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
