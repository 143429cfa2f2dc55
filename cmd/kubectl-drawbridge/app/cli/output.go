package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats of -o.
const (
	FormatWide = "wide"
	FormatJSON = "json"
	FormatYAML = "yaml"
	FormatName = "name"
)

// AddOutput adds -o to a command.
func (o *Options) AddOutput(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "output format, one of "+strings.Join(formats, ", "))
	Must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Output != "" && !slices.Contains(formats, o.Output) {
			return fmt.Errorf("--output must be one of %s, not %q", strings.Join(formats, ", "), o.Output)
		}
		return run(cmd, args)
	}
}

// PrintObject prints an object as -o asks: json, yaml or name.
func (o *Options) PrintObject(object runtime.Object) error {
	var printer printers.ResourcePrinter
	switch o.Output {
	case FormatJSON:
		printer = &printers.JSONPrinter{}
	case FormatYAML:
		printer = &printers.YAMLPrinter{}
	default:
		printer = &printers.NamePrinter{}
	}
	return printers.NewTypeSetter(Scheme).ToPrinter(printer).PrintObj(object, o.Out)
}

// PrintValue prints a value that is not an API object as -o asks: json or yaml.
func (o *Options) PrintValue(value any) error {
	var text []byte
	var err error
	if o.Output == FormatYAML {
		text, err = yaml.Marshal(value)
	} else {
		text, err = json.MarshalIndent(value, "", "    ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("print %s: %w", o.Output, err)
	}
	_, err = o.Out.Write(text)
	return err
}

// Table aligns columns to their widest cell.
type Table struct{ *tabwriter.Writer }

// NewTable returns an empty table. Flush prints it.
func NewTable(out io.Writer) Table {
	return Table{printers.GetNewTabWriter(out)}
}

// Row adds a line.
func (t Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = cmp.Or(cells[i], "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// Age is how long ago a time was; empty if it never was.
func Age(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(t))
}
