package app

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/features"
)

// OperationsOptions configure running the manager in production.
type OperationsOptions struct {
	// CertManagerCertificate is cert-manager's Certificate in Namespace that fills the
	// Secret of the webhook's certificate; empty when the manager issues it itself.
	CertManagerCertificate string
	// CertificateSettle is how long a new authority is announced before a certificate
	// of it is served.
	CertificateSettle time.Duration
	// MetricsProtected serves the metrics by TLS, to users whom the API server
	// authenticates and allows to get the path /metrics.
	MetricsProtected bool
	// LogLevelConfig is the ConfigMap in Namespace whose key level changes the log
	// level at any time; empty for none.
	LogLevelConfig string
	// Gates are the feature gates.
	Gates features.Gates
}

func defaultOperationsOptions() OperationsOptions {
	return OperationsOptions{CertificateSettle: certs.DefaultSettle, MetricsProtected: true}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *OperationsOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertManagerCertificate, "cert-manager-certificate", o.CertManagerCertificate, "cert-manager's Certificate in the manager's namespace that fills --webhook-cert-secret; empty if the manager issues its own certificate.")
	fs.DurationVar(&o.CertificateSettle, "certificate-settle", o.CertificateSettle, "How long a new authority is announced to the API servers before its certificate is served.")
	fs.BoolVar(&o.MetricsProtected, "metrics-protected", o.MetricsProtected, "Serve the metrics over TLS, and only to clients that may get the path /metrics.")
	fs.StringVar(&o.LogLevelConfig, "log-level-config", o.LogLevelConfig, "ConfigMap in the manager's namespace whose key level overrides --log-level, at any time; empty for none.")
	fs.Var(cliflag.NewMapStringBool(&o.Gates.Set), "feature-gates", "Feature gates that differ from their default, as Name=true or Name=false, separated by commas.")
}

// validate calls check for everything that must hold.
func (o *OperationsOptions) validate(check func(ok bool, format string, args ...any)) {
	check(o.CertManagerCertificate == "" || len(validation.IsDNS1123Subdomain(o.CertManagerCertificate)) == 0, "--cert-manager-certificate: %q is not the name of a Certificate", o.CertManagerCertificate)
	check(o.CertificateSettle > 0, "--certificate-settle must be positive, not %s", o.CertificateSettle)
	check(o.LogLevelConfig == "" || len(validation.IsDNS1123Subdomain(o.LogLevelConfig)) == 0, "--log-level-config: %q is not the name of a ConfigMap", o.LogLevelConfig)
	if err := o.Gates.Validate(); err != nil {
		check(false, "--feature-gates: %w", err)
	}
}

// validateGates calls check for every requested feature: its gate must be on.
func (o *Options) validateGates(check func(ok bool, format string, args ...any)) {
	gates := o.Operations.Gates
	check(!o.Guard.Enabled || gates.Enabled(features.Guard), "--guard needs the feature gate Guard: leave the gate on, or say --guard=false (value guard.enabled)")
	check(!o.Surge || gates.Enabled(features.Surge), "--surge needs the feature gate Surge: leave the gate on, or say --surge=false (value surge.enabled)")
	check(!o.Hooks.Enabled || gates.Enabled(features.EvacuationHooks), "--hooks needs the feature gate EvacuationHooks: leave the gate on, or say --hooks=false (value hooks.enabled)")
	check(!o.Budgets.Enabled || gates.Enabled(features.EvictionBudgets), "--budgets needs the feature gate EvictionBudgets: leave the gate on, or say --budgets=false (value budgets.enabled)")
	check(len(o.EvacuationPresets) == 0 || gates.Enabled(features.EvacuationPresets), "--evacuation-preset needs the feature gate EvacuationPresets: leave the gate on, or name no preset (values vm.*.enabled)")
	// Auto is the default: without the gate it finds nothing.
	asked := o.Native.Controllers == string(charge.Drawbridge) || o.Native.Controllers == string(charge.Cluster)
	check(!asked || gates.Enabled(features.NativeAPI), "--native-controllers=%s needs the feature gate NativeAPI: leave the gate on, or say --native-controllers=Off (value native.controllers)", o.Native.Controllers)
}
