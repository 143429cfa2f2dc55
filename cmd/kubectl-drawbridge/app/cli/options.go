// Package cli is shared by the plugin's commands: options, the connection to the
// cluster, printing, and completion.
package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// DefaultNamespace is Drawbridge's namespace if none is given.
const DefaultNamespace = "drawbridge-system"

// Options are what the commands share.
type Options struct {
	genericiooptions.IOStreams
	// Clock tells the time and when to draw again.
	Clock clock.WithTicker
	// Config has the flags of every kubectl command: --context, --namespace and so on.
	Config *genericclioptions.ConfigFlags
	// System is the namespace that Drawbridge runs in.
	System string
	// Size is the size of the terminal on standard output, in columns and lines; not ok
	// if it is no terminal.
	Size func() (width, height int, ok bool)
	// Escapes makes that terminal obey escape codes; false if it would print them.
	Escapes func() bool
	// Getenv reads the environment.
	Getenv func(string) string

	// Output is the value of -o.
	Output string
}

// DefaultOptions are the program's defaults.
func DefaultOptions() *Options {
	return &Options{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:     clock.RealClock{},
		Config: genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
			// The commands of one user; the server limits them, too.
			c.QPS, c.Burst = 50, 100
			return c
		}),
		System:  DefaultNamespace,
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

// Canvas is the size of a terminal that a view can be redrawn on; if not ok, lines are
// printed instead.
func (o *Options) Canvas() (width, height int, ok bool) {
	width, height, ok = o.Size()
	return width, height, ok && o.Getenv("TERM") != "dumb" && o.Escapes()
}

// Color reports whether lines are in colors: on a terminal that obeys escape codes, unless
// NO_COLOR is set to anything.
func (o *Options) Color() bool {
	_, _, ok := o.Canvas()
	return ok && o.Getenv("NO_COLOR") == ""
}

// Width is how many columns lines may take: those of the terminal; 0 in a pipe or a file,
// where nothing is cut.
func (o *Options) Width() int {
	width, _, ok := o.Size()
	if !ok {
		return 0
	}
	return width
}

// PrintLines prints lines, in colors if there are any, and with marks of what was cut that the
// terminal can show.
func (o *Options) PrintLines(lines []text.Line) error {
	for i := range lines {
		if o.Width() > 0 && o.ASCIIOnly() {
			lines[i].Text = text.ASCII(lines[i].Text)
		}
	}
	if err := text.Print(o.Out, lines, o.Color()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// ASCIIOnly reports whether the terminal's character set lacks block characters.
func (o *Options) ASCIIOnly() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(o.Getenv(name)); value != "" {
			return !strings.Contains(value, "utf-8") && !strings.Contains(value, "utf8")
		}
	}
	return false
}

// Must panics on programming errors.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// ErrInterrupted says that the user pressed ^C. All output has been printed.
var ErrInterrupted = errors.New("interrupted")
