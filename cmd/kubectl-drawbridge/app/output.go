package app

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
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
	formatName = "name"
)

// addOutput adds -o to a command.
func (o *Options) addOutput(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format, one of "+strings.Join(formats, ", "))
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.output != "" && !slices.Contains(formats, o.output) {
			return fmt.Errorf("--output must be one of %s, not %q", strings.Join(formats, ", "), o.output)
		}
		return run(cmd, args)
	}
}

// printObject prints an object as -o asks: json, yaml or name.
func (o *Options) printObject(object runtime.Object) error {
	var printer printers.ResourcePrinter
	switch o.output {
	case formatJSON:
		printer = &printers.JSONPrinter{}
	case formatYAML:
		printer = &printers.YAMLPrinter{}
	default:
		printer = &printers.NamePrinter{}
	}
	return printers.NewTypeSetter(scheme).ToPrinter(printer).PrintObj(object, o.Out)
}

// printValue prints what is no object of the API as -o asks: json or yaml.
func (o *Options) printValue(value any) error {
	var text []byte
	var err error
	if o.output == formatYAML {
		text, err = yaml.Marshal(value)
	} else {
		text, err = json.MarshalIndent(value, "", "    ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("print %s: %w", o.output, err)
	}
	_, err = o.Out.Write(text)
	return err
}

// table prints columns that are as wide as their widest cell.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer) table {
	return table{printers.GetNewTabWriter(out)}
}

// row adds a line.
func (t table) row(cells ...string) {
	for i := range cells {
		cells[i] = cmp.Or(cells[i], "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// age is how long ago a time was; empty if it never was.
func age(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(t))
}

// left is how much time is left until t; empty if there is none to tell.
func left(now, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return duration.HumanDuration(t.Sub(now))
	default:
		return "late"
	}
}
