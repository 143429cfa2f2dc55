// Package app is the command line of kubectl-drawbridge.
package app

import (
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Options are what the commands share.
type Options struct {
	genericiooptions.IOStreams
	// Clock tells the time and when to draw again.
	Clock clock.WithTicker
	// Config has the flags of every kubectl command: --context, --namespace and so on.
	Config *genericclioptions.ConfigFlags
	// System is the namespace that Drawbridge runs in.
	System string
	// Size is the size of the terminal that standard output is, in columns and lines; no
	// ok means that it is none.
	Size func() (width, height int, ok bool)
	// Escapes makes that terminal obey escape codes, if it can; false means that it
	// prints them.
	Escapes func() bool
	// Getenv reads the environment.
	Getenv func(string) string

	// output is the value of -o.
	output string
}

// DefaultOptions are those of the program.
func DefaultOptions() *Options {
	return &Options{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:     clock.RealClock{},
		Config: genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
			// One person's commands; the server limits them as well.
			c.QPS, c.Burst = 50, 100
			return c
		}),
		System:  "drawbridge-system",
		Size:    func() (int, int, bool) { return terminalSize(os.Stdout) },
		Escapes: sync.OnceValue(func() bool { return obeysEscapes(os.Stdout) }),
		Getenv:  os.Getenv,
	}
}

func terminalSize(out *os.File) (width, height int, ok bool) {
	fd := int(out.Fd())
	if !term.IsTerminal(fd) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(fd)
	return width, height, err == nil && width > 0 && height > 0
}

// canvas is the size of a terminal that a view can be drawn on, over and over; no ok
// means that lines are to be printed.
func (o *Options) canvas() (width, height int, ok bool) {
	width, height, ok = o.Size()
	return width, height, ok && o.Getenv("TERM") != "dumb" && o.Escapes()
}

// asciiOnly reports whether the terminal's character set lacks block characters.
func (o *Options) asciiOnly() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(o.Getenv(name)); value != "" {
			return !strings.Contains(value, "utf-8") && !strings.Contains(value, "utf8")
		}
	}
	return false
}

const longHelp = `Drain nodes, see what is going on, why it is not finished, and stop it.

Drawbridge lets the interceptors of pods (migrations, replacements, checkpoints)
work before the pods are evicted. This plugin is the person's side of it.

Exit codes: 0 when all went well, 1 when it did not, and 130 after ^C.`

// NewCommand returns the command line.
func NewCommand(o *Options) *cobra.Command {
	// Errors come back to us; the libraries' own lines would break the view.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	root := &cobra.Command{
		Use:           "kubectl-drawbridge",
		Short:         "Drain nodes past the interceptors of their pods",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl drawbridge"},
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	o.Config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.System, "drawbridge-namespace", o.System, "namespace that Drawbridge runs in")
	root.AddCommand(
		newDrain(o), newStatus(o), newWhy(o), newCancel(o), newUncordon(o), newSkip(o), newInterceptors(o), newDoctor(o), newVersion(o),
	)
	root.InitDefaultCompletionCmd()
	must(root.RegisterFlagCompletionFunc("namespace", o.completeNamespaces))
	return root
}

// must is for mistakes of this program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
