package app

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/translate"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// Options are what the manager is started with. The zero value is not usable,
// see DefaultOptions.
type Options struct {
	// Namespace is the manager's own: leader election, the leases of legacy
	// requesters and the certificate live there. Required.
	Namespace string

	// WebhookHost is the address the webhook listens on; all addresses when empty.
	WebhookHost string
	// WebhookPort is the port the webhook listens on, 1 to 65535.
	WebhookPort int
	// WebhookDNSNames are the names the webhook is called by. localhost is always
	// added.
	WebhookDNSNames []string
	// WebhookCertSecret is the Secret in Namespace that holds the certificate.
	WebhookCertSecret string
	// WebhookConfiguration is the ValidatingWebhookConfiguration that gets the CA;
	// empty when there is none.
	WebhookConfiguration string

	// HealthAddr and MetricsAddr are host:port; "0" switches the server off.
	HealthAddr  string
	MetricsAddr string
	// MetricsPerRequest has the metrics with a series per EvictionRequest.
	MetricsPerRequest bool
	// PprofAddr is where net/http/pprof listens, which exposes the internals of the
	// process; "0" switches it off.
	PprofAddr string

	// LeaderElect lets only one replica run the controllers.
	LeaderElect bool
	// LeaseDuration, RenewDeadline and RetryPeriod are client-go's constants of
	// leader election, each longer than the next.
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	// ShutdownDelay is how long an unready replica keeps serving, until all clients have
	// noticed that it leaves.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long the shutdown may take after that.
	ShutdownTimeout time.Duration

	// Policy has the constants of the process.
	Policy process.Policy
	// ShortHeartbeatDeadline allows a heartbeat deadline below minHeartbeatDeadline. It
	// is for tests, whose interceptors are silent on purpose; its flag is hidden.
	ShortHeartbeatDeadline bool
	// EvictionBackoffMin and EvictionBackoffMax limit the pause between two calls
	// of a pod's eviction subresource.
	EvictionBackoffMin time.Duration
	EvictionBackoffMax time.Duration
	// Retention is how long a finished request is kept; 0 keeps it forever.
	Retention time.Duration
	// MarkerDebounce is how long the drain markers of a node must be gone before
	// a legacy requester is removed.
	MarkerDebounce time.Duration
	// MarkerLimit is how long a drain marker keeps the request of a silent controller
	// alive.
	MarkerLimit time.Duration
	// CallerSilence is how long callers of a class may be silent, by class, as a
	// duration. Other classes have their defaults.
	CallerSilence map[string]string
	// Deadlines are those of callers that cannot say how long they wait.
	Deadlines DeadlineOptions
	// Taints are about pods that taints delete.
	Taints TaintOptions
	// Native is about lifecycle.k8s.io.
	Native NativeOptions
	// ReplacementGuard is one of replacementGuards.
	ReplacementGuard string
	// ReplacementWindow is how long after a pod's end its replacement is guarded.
	ReplacementWindow time.Duration
	// NewRequestsPerNode is how many requests the callers of a class may begin on a
	// node within a minute, for each of LimitedClasses; 0 is no limit.
	NewRequestsPerNode int
	// LimitedClasses are the classes of callers that the limit applies to.
	LimitedClasses []string
	// AllowedReservedNames are interceptors under k8s.io and kubernetes.io that a
	// pod may name (ruling R14).
	AllowedReservedNames []string
	// Guard configures the protection by budgets.
	Guard GuardOptions
	// WebhookClients configures who may call the webhook.
	WebhookClients WebhookClientOptions
	// Preemption configures budgets that the scheduler may not violate.
	Preemption PreemptionOptions

	// Maintenance configures NodeMaintenances.
	Maintenance MaintenanceOptions

	// Hooks configures EvacuationHooks.
	Hooks HookOptions
	// Budgets configures EvictionBudgets.
	Budgets BudgetOptions

	// EvacuationPresets are the ConfigMaps in Namespace with policies and registrations
	// that the manager creates. A ClusterRole of the same name owns them.
	EvacuationPresets []string

	// DeschedulerMark marks pods whose eviction goes on, and
	// DeschedulerEvictOnly pods whose eviction would be intercepted, with the
	// descheduler's annotations.
	DeschedulerMark      bool
	DeschedulerEvictOnly bool
	// DeschedulerExcept selects pods, by labels, that DeschedulerMark leaves to their
	// platform; empty for none.
	DeschedulerExcept string

	// PodDeletionCost gives pods of ReplicaSets the lowest deletion cost while their
	// eviction is requested.
	PodDeletionCost bool

	// Surge runs the interceptor surge.drawbridge.dev.
	Surge bool
	// SurgeRegistration is the ConfigMap in Namespace with its registration, and the
	// ClusterRole that owns it; empty if it is registered by other means.
	SurgeRegistration string
	// SurgeProgressDeadline is how long a replacement may take; 0 leaves it to each
	// Deployment.
	SurgeProgressDeadline time.Duration
	// SurgeClusterLimit is how many pods of the cluster may be handed up at a time; 0
	// is any number.
	SurgeClusterLimit int

	// Operations configures certificates, protection of the metrics, and feature gates.
	Operations OperationsOptions

	// LogLevel is info, debug, or a number: the verbosity of V-levels. LogFormat is
	// json or console.
	LogLevel  string
	LogFormat string

	// The fields below have no flag.

	// Preflights are interceptors, by name, that may allow or deny before a request
	// exists, in addition to our own.
	Preflights map[string]preflight.Interceptor
	// Clock is used by the engine, the evictor, the leases and the webhook. Certificates
	// and leader election always use the real clock, because others check them against
	// theirs.
	Clock clock.WithTicker
	// Registerer takes our metrics. Default: controller-runtime's registry, which
	// --metrics-addr serves; two managers in one process need one each.
	Registerer prometheus.Registerer
	// Logger of the manager.
	Logger logr.Logger
	// Level is the logger's level, which may change while the manager runs; nil if it is
	// fixed.
	Level *zap.AtomicLevel
	// CacheWhole keeps complete pods and nodes in the informers, to measure what
	// trimming them saves.
	CacheWhole bool
}

// maxNewRequestsPerNode bounds the memory of the limit; no node has more pods.
const maxNewRequestsPerNode = 1000

// limitable are the classes of callers that may be limited: all but interactive users.
func limitable() []string {
	var classes []string
	for _, class := range translate.CallerClasses() {
		if class != translate.ClassKubectl {
			classes = append(classes, string(class))
		}
	}
	slices.Sort(classes)
	return classes
}

// limitedClasses are those of the option.
func (o *Options) limitedClasses() []translate.CallerClass {
	classes := make([]translate.CallerClass, 0, len(o.LimitedClasses))
	for _, class := range o.LimitedClasses {
		classes = append(classes, translate.CallerClass(class))
	}
	return classes
}

// replacementGuards are the values of --replacement-guard.
var replacementGuards = []string{string(webhook.ReplacementNotFound), string(webhook.ReplacementEvict), string(webhook.ReplacementTooManyRequests)}

// DefaultOptions are the flags' defaults.
func DefaultOptions() Options {
	return Options{
		Namespace:            os.Getenv("POD_NAMESPACE"),
		WebhookHost:          "127.0.0.1",
		WebhookPort:          9443,
		WebhookCertSecret:    "drawbridge-webhook-cert",
		WebhookConfiguration: "drawbridge",
		HealthAddr:           "127.0.0.1:8081",
		MetricsAddr:          "127.0.0.1:8080",
		MetricsPerRequest:    true,
		PprofAddr:            "0",
		LeaderElect:          true,
		LeaseDuration:        15 * time.Second,
		RenewDeadline:        10 * time.Second,
		RetryPeriod:          2 * time.Second,
		ShutdownDelay:        5 * time.Second,
		ShutdownTimeout:      20 * time.Second,
		Policy:               process.DefaultPolicy(),
		EvictionBackoffMin:   5 * time.Second,
		EvictionBackoffMax:   15 * time.Minute,
		Retention:            time.Hour,
		MarkerDebounce:       time.Minute,
		MarkerLimit:          translate.DefaultMarkerLimit,
		ReplacementGuard:     string(webhook.ReplacementNotFound),
		ReplacementWindow:    15 * time.Minute,
		Guard:                defaultGuardOptions(),
		Preemption:           defaultPreemptionOptions(),
		Deadlines:            defaultDeadlineOptions(),
		Native:               defaultNative(),
		Maintenance:          defaultMaintenanceOptions(),
		Hooks:                defaultHookOptions(),
		Budgets:              defaultBudgetOptions(),
		NewRequestsPerNode:   10,
		LimitedClasses:       []string{string(translate.ClassDescheduler)},
		DeschedulerMark:      true,
		Surge:                true,
		SurgeRegistration:    "drawbridge-surge",
		Operations:           defaultOperationsOptions(),
		LogLevel:             "info",
		LogFormat:            "json",
		Clock:                clock.RealClock{},
	}
}

const (
	// minHeartbeatDeadline leaves room for a late heartbeat: the API accepts one per
	// minute.
	minHeartbeatDeadline = 2 * interceptor.MinHeartbeatInterval
	// shortHeartbeatDeadlineFlag is hidden: no installation wants it.
	shortHeartbeatDeadlineFlag = "allow-short-heartbeat-deadline"
)

// AddFlags adds the flags to fs. Their defaults are the current values.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "The manager's own namespace. Leader election, the leases of legacy requesters and the certificate use it. Default: the environment variable POD_NAMESPACE.")

	fs.StringVar(&o.WebhookHost, "webhook-host", o.WebhookHost, "Address that the webhook listens on; all addresses when empty.")
	fs.IntVar(&o.WebhookPort, "webhook-port", o.WebhookPort, "Port that the webhook listens on.")
	fs.StringSliceVar(&o.WebhookDNSNames, "webhook-dns-name", o.WebhookDNSNames, "DNS name of the webhook, for its certificate; may be repeated. localhost is always added.")
	fs.StringVar(&o.WebhookCertSecret, "webhook-cert-secret", o.WebhookCertSecret, "Secret in the manager's namespace that holds the webhook's certificate.")
	fs.StringVar(&o.WebhookConfiguration, "webhook-configuration", o.WebhookConfiguration, "ValidatingWebhookConfiguration to write the CA of the certificate to; empty if there is none.")

	fs.StringVar(&o.HealthAddr, "health-addr", o.HealthAddr, `Address of /healthz and /readyz; "0" disables them.`)
	fs.StringVar(&o.MetricsAddr, "metrics-addr", o.MetricsAddr, `Address of the Prometheus metrics; "0" disables them.`)
	fs.BoolVar(&o.MetricsPerRequest, "metrics-per-request", o.MetricsPerRequest, "Serve the metrics of KEP-4563, which are a few series per EvictionRequest.")

	fs.StringVar(&o.PprofAddr, "pprof-addr", o.PprofAddr, `Address of net/http/pprof, which exposes internals of the process; "0" disables it.`)

	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Run the controllers on one elected replica only. All replicas serve the webhook.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "How long the other replicas wait for a leader that does not renew.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "How long a leader tries to renew before it gives up.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "How long each replica waits between two attempts.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", o.ShutdownDelay, "How long a stopping replica is unready but keeps serving.")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "How long the shutdown may take after the delay.")

	fs.DurationVar(&o.Policy.HeartbeatDeadline, "heartbeat-deadline", o.Policy.HeartbeatDeadline, "How long an interceptor may be silent before the next one gets its turn; at least 2m, as heartbeats may come once a minute.")
	fs.BoolVar(&o.ShortHeartbeatDeadline, shortHeartbeatDeadlineFlag, o.ShortHeartbeatDeadline, "Allow a --heartbeat-deadline that no interceptor can keep; for tests.")
	if flag := fs.Lookup(shortHeartbeatDeadlineFlag); flag != nil {
		flag.Hidden = true
	}
	fs.DurationVar(&o.Policy.ClockSkew, "clock-skew", o.Policy.ClockSkew, "How far a time that an interceptor reports may differ from the manager's clock.")
	fs.DurationVar(&o.Policy.CompletionGrace, "completion-grace", o.Policy.CompletionGrace, "How long the last interceptor may still report after the pod has ended.")
	fs.DurationVar(&o.Policy.StartupGrace, "startup-grace", o.Policy.StartupGrace, "How long after the start no interceptor is skipped, and no requester removed, for silence.")
	fs.DurationVar(&o.Policy.DeadlineMargin, "deadline-margin", o.Policy.DeadlineMargin, "How much earlier than the deadline of a requester, less the pod's grace period, the interceptors have to be done.")
	fs.DurationVar(&o.Policy.HardNotice, "hard-notice", o.Policy.HardNotice, "How long interceptors have from when they learn of a requester that does not wait, or of a deadline that is over.")
	fs.DurationVar(&o.EvictionBackoffMin, "eviction-backoff-min", o.EvictionBackoffMin, "Pause after the first failed call of a pod's eviction subresource.")
	fs.DurationVar(&o.EvictionBackoffMax, "eviction-backoff-max", o.EvictionBackoffMax, "Longest pause between two such calls.")
	fs.DurationVar(&o.Retention, "retention", o.Retention, "How long a finished EvictionRequest is kept; 0 keeps it forever. Not shorter than --replacement-window.")
	fs.DurationVar(&o.MarkerDebounce, "marker-debounce", o.MarkerDebounce, "How long the drain markers of a node must be gone before a legacy requester is removed.")
	fs.DurationVar(&o.MarkerLimit, "marker-limit", o.MarkerLimit, "How long a drain marker keeps the request of a silent controller, in case the marker is never removed.")
	fs.StringToStringVar(&o.CallerSilence, "caller-silence", o.CallerSilence, "How long legacy callers of a class may be silent before they are removed, as CLASS=DURATION; may be repeated.")
	fs.StringVar(&o.ReplacementGuard, "replacement-guard", o.ReplacementGuard, "Answer to a caller that evicts by name the replacement of a pod that it has already moved: "+strings.Join(replacementGuards, ", ")+".")
	fs.DurationVar(&o.ReplacementWindow, "replacement-window", o.ReplacementWindow, "How long after the end of the first pod this applies.")
	fs.IntVar(&o.NewRequestsPerNode, "new-requests-per-node", o.NewRequestsPerNode, "How many requests the callers of a limited class may begin on a node within a minute, per replica; 0 is no limit.")
	fs.StringSliceVar(&o.LimitedClasses, "limited-caller-class", o.LimitedClasses, "Class of callers that --new-requests-per-node limits; may be repeated. Never kubectl.")
	fs.StringSliceVar(&o.AllowedReservedNames, "allowed-reserved-name", o.AllowedReservedNames, "Name under k8s.io or kubernetes.io that pods may use as the name of an interceptor; may be repeated.")
	o.Deadlines.addFlags(fs)
	o.Taints.addFlags(fs)
	o.Native.addFlags(fs)
	o.Guard.addFlags(fs)
	o.WebhookClients.addFlags(fs)
	o.Preemption.addFlags(fs)
	o.Hooks.addFlags(fs)
	o.Budgets.addFlags(fs)
	o.Maintenance.addFlags(fs)
	fs.StringSliceVar(&o.EvacuationPresets, "evacuation-preset", o.EvacuationPresets, "ConfigMap in the manager's namespace with EvacuationPolicies and their registrations, which the manager creates; a ClusterRole of that name owns them. May be repeated.")

	fs.BoolVar(&o.DeschedulerMark, "descheduler-mark-in-progress", o.DeschedulerMark, "Put the descheduler's annotation eviction-in-progress on a pod while its eviction is held up.")
	fs.StringVar(&o.DeschedulerExcept, "descheduler-except", o.DeschedulerExcept, "Label selector of pods whose platform sets eviction-in-progress itself; the manager does not set it on them. Empty for none.")
	fs.BoolVar(&o.DeschedulerEvictOnly, "descheduler-mark-evict-only", o.DeschedulerEvictOnly, "Put the descheduler's annotation request-evict-only on every pod that has interceptors.")
	fs.BoolVar(&o.PodDeletionCost, "pod-deletion-cost", o.PodDeletionCost, "Give pods of ReplicaSets the lowest controller.kubernetes.io/pod-deletion-cost while their eviction is held up, so that a scale-down takes them first.")

	fs.BoolVar(&o.Surge, "surge", o.Surge, "Run the interceptor surge.drawbridge.dev, which starts replacements for pods of Deployments before they are evicted.")
	fs.StringVar(&o.SurgeRegistration, "surge-registration", o.SurgeRegistration, "ConfigMap in the manager's namespace with the registration of surge.drawbridge.dev, and ClusterRole that owns it; empty if it is registered in another way.")
	fs.DurationVar(&o.SurgeProgressDeadline, "surge-progress-deadline", o.SurgeProgressDeadline, "How long a replacement may take to become available; 0 uses each Deployment's progressDeadlineSeconds.")
	fs.IntVar(&o.SurgeClusterLimit, "surge-cluster-limit", o.SurgeClusterLimit, "How many pods of the cluster may have a replacement at the same time; 0 is no limit.")

	o.Operations.addFlags(fs)

	fs.StringVar(&o.LogLevel, "log-level", o.LogLevel, "info, debug, or a number from 0 (info) to 5.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "json or console.")
}

// dnsNames are the names of the certificate, each once.
func (o *Options) dnsNames() []string {
	names := slices.Clone(o.WebhookDNSNames)
	if !slices.Contains(names, "localhost") {
		names = append(names, "localhost")
	}
	return names
}
