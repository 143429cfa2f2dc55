package app

import (
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// WebhookClientOptions say how API servers authenticate, besides the token.
type WebhookClientOptions struct {
	// ClientCA is the ConfigMap, namespace/name, with the authorities of the client
	// certificates that API servers must have; empty to ask for none.
	ClientCA string
	// Users are the names that those certificates may have.
	Users []string
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (w *WebhookClientOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&w.ClientCA, "webhook-client-ca", w.ClientCA, "ConfigMap, namespace/name, whose key client-ca-file has the authorities of the client certificate that API servers must use in addition to the token; empty to require none.")
	fs.StringSliceVar(&w.Users, "webhook-client-user", w.Users, "Name that the API servers' client certificate may have; may be repeated.")
}

// validate calls check for everything that must hold.
func (w *WebhookClientOptions) validate(o *Options, check func(ok bool, format string, args ...any)) {
	if w.ClientCA == "" {
		return
	}
	name := namespacedName(w.ClientCA)
	check(len(validation.IsDNS1123Label(name.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(name.Name)) == 0,
		"--webhook-client-ca: %q is not the namespace/name of a ConfigMap", w.ClientCA)
	check(len(w.Users) > 0, "--webhook-client-user: client certificates are asked for, but in nobody's name")
	for _, user := range w.Users {
		check(user != "", "--webhook-client-user: a name is empty")
	}
	// There is one informer per namespace, for one name.
	if other := o.Preemption.clientCA(); o.Preemption.Enabled && o.Preemption.ClientCA != "" && other.Namespace == name.Namespace {
		check(other == name, "--webhook-client-ca and --preemption-client-ca must not name two ConfigMaps of one namespace")
	}
	check(o.Operations.LogLevelConfig == "" || name.Namespace != o.Namespace, "--webhook-client-ca must not be in the manager's own namespace")
}

// namespacedName reads namespace/name; the namespace is empty if there is none in it.
func namespacedName(text string) types.NamespacedName {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return types.NamespacedName{Name: namespace}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}
