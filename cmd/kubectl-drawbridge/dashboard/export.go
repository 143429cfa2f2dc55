package dashboard

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/assets"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

//go:embed export.html
var files embed.FS

var report = template.Must(template.ParseFS(files, "export.html"))

// filePolicy allows a file to load nothing at all; its style is inside.
const filePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"

func newExport(d *options) *cobra.Command {
	node, pod := "", ""
	cmd := &cobra.Command{
		Use:   "export [--node=NODE | --pod=POD]",
		Short: "Print a page of the dashboard as one file",
		Long: `Print a page as it is now: of a node with the timelines of its pods, of a pod of the
namespace with all that kubectl drawbridge why knows, or of all drains. The file has no
scripts and loads nothing, so that it can be kept, or sent to others. It has the names
and messages of the cluster in it.`,
		Example:           `  kubectl drawbridge dashboard export --node=node-1 > drain.html`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node != "" && pod != "" {
				return errors.New("either --node or --pod can be given, not both")
			}
			return d.export(cmd.Context(), node, strings.TrimPrefix(pod, "pod/"))
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "the page of this node")
	cmd.Flags().StringVar(&pod, "pod", "", "the page of this pod of the namespace")
	cli.Must(cmd.RegisterFlagCompletionFunc("node", d.CompleteNodes(0)))
	cli.Must(cmd.RegisterFlagCompletionFunc("pod", d.CompletePod))
	return cmd
}

func (d *options) export(ctx context.Context, node, pod string) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	store, err := state.New(d.Options, c, d.Version)
	if err != nil {
		return err
	}
	if err := store.Start(watching); err != nil {
		if ctx.Err() != nil {
			return cli.ErrInterrupted
		}
		return err
	}
	r := page.Request{Snapshot: store.Snapshot(), Query: url.Values{}, Values: map[string]string{}, ReadOnly: true, Export: true, Backend: newBackend(d.Options, c)}
	pattern := "/"
	switch {
	case node != "":
		pattern, r.Values["node"] = "/nodes/{node}", node
	case pod != "":
		pattern, r.Values["namespace"], r.Values["pod"] = "/pods/{namespace}/{pod}", c.Namespace, pod
	}
	for _, p := range page.Pages() {
		if p.Pattern != pattern {
			continue
		}
		content, err := p.Render(ctx, r)
		if err != nil {
			return err
		}
		return d.printFile(r, content)
	}
	return fmt.Errorf("there is no page %s", pattern)
}

// links lead to other pages, which a file does not have. Quotes are escaped in texts, so only
// attributes look like that.
var links = regexp.MustCompile(` href="[^"]*"`)

// printFile prints the page with all it needs.
func (d *options) printFile(r page.Request, content page.Content) error {
	style, err := assets.Style()
	if err != nil {
		return fmt.Errorf("read the stylesheet: %w", err)
	}
	var main strings.Builder
	for _, f := range content.Fragments {
		main.WriteString(links.ReplaceAllString(string(f.Element()), ""))
	}
	err = report.Execute(d.Out, map[string]any{
		"Policy": filePolicy, "Style": template.CSS(style), "Title": content.Title, "Main": template.HTML(main.String()), //nolint:gosec // Both are ours, or were escaped.
		"Cluster": text.Clean(d.cluster()), "Now": r.Snapshot.Now, "Gaps": r.Snapshot.Gaps,
	})
	if err != nil {
		return fmt.Errorf("print the page: %w", err)
	}
	return nil
}
