// Command gen writes docs/reference/kubectl-drawbridge.md from the commands. Run it
// from the root of the project.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

func main() {
	page := filepath.Join("docs", "reference", "kubectl-drawbridge.md")
	if err := os.WriteFile(page, []byte(reference(app.NewCommand(cli.DefaultOptions()))), 0o644); err != nil { //nolint:gosec // A page is for everybody.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// reference is the page about all commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# kubectl drawbridge\n\n<!-- Written by `make generate-docs` from the commands. -->\n\n%s\n\n"+
		"How to install and use it: [the guide](../guides/plugin.md).\n\n| Command | |\n|---|---|\n", root.Long)
	commands := root.Commands()
	for _, c := range commands {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.Name(), c.Name(), c.Short)
		}
	}
	for _, c := range commands {
		if !c.IsAvailableCommand() {
			continue
		}
		section(&b, "##", "", c)
		for _, sub := range c.Commands() {
			// Those of completion are cobra's, but for the one about kubectl.
			if sub.IsAvailableCommand() && (c.Name() != "completion" || sub.Name() == "kubectl") {
				section(&b, "###", c.Name()+" ", sub)
			}
		}
	}
	b.WriteString("\n## Flags of all commands\n\nThose of kubectl, and `--drawbridge-namespace`.\n")
	table(&b, root.PersistentFlags())
	return b.String()
}

// section is about one command; parent is the name of the command that it belongs to,
// with a space.
func section(b *strings.Builder, heading, parent string, c *cobra.Command) {
	fmt.Fprintf(b, "\n%s %s%s\n\n    kubectl drawbridge %s%s\n\n%s\n", heading, parent, c.Name(), parent, c.Use, description(c))
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n%s\n", indent(c.Example))
	}
	// The help flag is made when the command runs.
	table(b, c.LocalNonPersistentFlags())
}

// description is the long text of a command. The text of completion is cobra's and has
// its own commands.
func description(c *cobra.Command) string {
	if c.Name() == "completion" || c.Long == "" {
		return c.Short + "."
	}
	return c.Long
}

func indent(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, "    "+strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// table is the table of the flags, without those that depend on the machine.
func table(b *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString("\n| Flag | Default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		name, def := "--"+f.Name, f.DefValue
		if f.Shorthand != "" {
			name += ", -" + f.Shorthand
		}
		if f.Name == "cache-dir" {
			def = "$HOME/.kube/cache"
		}
		if def == "[]" || def == "" {
			def = " "
		} else {
			def = " `" + def + "` "
		}
		fmt.Fprintf(b, "| `%s` |%s| %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
}
