package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/skew"
	"github.com/drawbridge-dev/drawbridge/internal/version"
)

// Versions are the versions of the components.
type Versions struct {
	// Client is the plugin's version.
	Client string `json:"client"`
	// Server is the version of Kubernetes.
	Server string `json:"server,omitempty"`
	// Manager is the version of the manager, and Chart of what it was installed with; empty
	// if the Deployment could not be read.
	Manager string `json:"manager,omitempty"`
	Chart   string `json:"chart,omitempty"`
	// Definitions are the versions of the CustomResourceDefinitions; empty if they could not
	// be read, or do not say.
	Definitions []string `json:"definitions,omitempty"`
	// API is our API as the server serves it; empty if it does not.
	API string `json:"api,omitempty"`
	// NativeAPI is Kubernetes' own API for evictions; empty if it is not served. NativeInCharge
	// says who moves its Evictions.
	NativeAPI      string `json:"nativeAPI,omitempty"`
	NativeInCharge string `json:"nativeInCharge,omitempty"`
	// Kinds of our API that the server serves.
	Kinds []string `json:"kinds,omitempty"`
}

func newVersion(o commands) *cobra.Command {
	only := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin, the cluster, the manager and the API",
		Long: `Print the versions of the plugin, of Kubernetes, of the manager, of its chart and of
the CustomResourceDefinitions, as far as you may read them; and whether Kubernetes' own
API for evictions is served (lifecycle.k8s.io), and who moves its Evictions.

Versions that differ are named on standard error, with what that means: "note" is a
difference that an upgrade may leave for a while, "warning" one that is not supported.
The exit code is still 0.`,
		Example:           `  kubectl drawbridge version --client`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.version(cmd.Context(), only)
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "only the plugin's own version; asks no server")
	o.AddOutput(cmd, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func (o commands) version(ctx context.Context, only bool) error {
	v := Versions{Client: version.Get()}
	if only {
		return o.printVersions(v)
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(c.REST)
	if err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	info, err := server.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("learn the version of the cluster: %w", err)
	}
	v.Server = info.GitVersion
	installed := o.Installed(ctx, c)
	v.Manager, v.Chart = installed.Version, installed.Chart
	if v.NativeInCharge = o.InCharge(ctx, c, installed); v.NativeInCharge != "" {
		v.NativeAPI = lifecyclev1alpha1.SchemeGroupVersion.String()
	}
	resources, err := server.ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
	if err == nil {
		v.API = resources.GroupVersion
		for _, r := range resources.APIResources {
			if r.Name != "" && r.Kind != "" && !isSubresource(r.Name) {
				v.Kinds = append(v.Kinds, r.Kind)
			}
		}
	} else if !isNotInstalled(err) {
		return fmt.Errorf("learn the version of the API: %w", err)
	}
	unread := installed.Unread
	if v.API != "" {
		var err error
		if v.Definitions, err = definitions(ctx, c); err != nil {
			unread = strings.TrimPrefix(unread+"; "+err.Error(), "; ")
		}
	}
	if unread != "" {
		fmt.Fprintln(o.ErrOut, "note: not compared: "+unread)
	}
	for _, finding := range skew.Check(skew.Versions{Plugin: v.Client, Manager: v.Manager, Chart: v.Chart, Definitions: v.Definitions}) {
		kind := "warning"
		if finding.Supported {
			kind = "note"
		}
		fmt.Fprintf(o.ErrOut, "%s: %s\n", kind, finding)
	}
	return o.printVersions(v)
}

// definitions are the versions of our CustomResourceDefinitions, each once.
func definitions(ctx context.Context, c *cli.Connection) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("the CustomResourceDefinitions could not be read (%w)", err)
	}
	var versions []string
	for i := range list.Items {
		if crd := &list.Items[i]; strings.HasSuffix(crd.Name, "."+v1alpha1.GroupName) && crd.Labels[cli.VersionLabel] != "" {
			versions = append(versions, crd.Labels[cli.VersionLabel])
		}
	}
	slices.Sort(versions)
	return slices.Compact(versions), nil
}

func isSubresource(resource string) bool { return strings.Contains(resource, "/") }

func (o commands) printVersions(v Versions) error {
	if o.Output != "" {
		return o.PrintValue(v)
	}
	line := func(what, value string) { fmt.Fprintf(o.Out, "%-12s%s\n", what+":", value) }
	line("Client", v.Client)
	if v.Server == "" {
		return nil
	}
	line("Kubernetes", v.Server)
	line("Manager", cmp.Or(v.Manager, "not seen"))
	line("Chart", cmp.Or(v.Chart, "not seen"))
	if v.NativeAPI == "" {
		line("Native API", "not served")
	} else {
		line("Native API", fmt.Sprintf("%s, in charge: %s", v.NativeAPI, v.NativeInCharge))
	}
	if v.API == "" {
		line("API", "not installed")
		return nil
	}
	line("API", fmt.Sprintf("%s, definitions %s", v.API, cmp.Or(strings.Join(v.Definitions, ", "), "of an unknown version")))
	return nil
}
