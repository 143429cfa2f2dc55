package app

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// version of the program, set by the linker for releases.
var version = ""

// Versions are the versions of the components.
type Versions struct {
	// Client is the plugin's version.
	Client string `json:"client"`
	// Server is the version of Kubernetes.
	Server string `json:"server,omitempty"`
	// API is our API as the server serves it; empty if it does not.
	API string `json:"api,omitempty"`
	// Kinds of our API that the server serves.
	Kinds []string `json:"kinds,omitempty"`
}

func newVersion(o commands) *cobra.Command {
	only := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the plugin, of the cluster and of the API",
		Example: `  kubectl drawbridge version --client`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.version(cmd.Context(), only)
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "only the plugin's own version; asks no server")
	o.AddOutput(cmd, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// clientVersion is the version that the program was built as.
func clientVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "development"
}

func (o commands) version(ctx context.Context, only bool) error {
	v := Versions{Client: clientVersion()}
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
	return o.printVersions(v)
}

func isSubresource(resource string) bool { return strings.Contains(resource, "/") }

func (o commands) printVersions(v Versions) error {
	if o.Output != "" {
		return o.PrintValue(v)
	}
	fmt.Fprintln(o.Out, "Client:    ", v.Client)
	if v.Server == "" {
		return nil
	}
	fmt.Fprintln(o.Out, "Kubernetes:", v.Server)
	if v.API == "" {
		fmt.Fprintln(o.Out, "API:        not installed")
		return nil
	}
	fmt.Fprintln(o.Out, "API:       ", v.API)
	return nil
}
