//go:build unix

// Command bench measures Drawbridge against what it costs not to have it, on the
// embedded control plane: both sides alternately, in the same run, on the same
// machine. It prints one table and can write it to a page.
//
// The program plays several parts, told apart by the name it is run under, so that
// what is measured has a process of its own: see roles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// Names the program is run under for its other parts.
const (
	trivialRole = "bench-trivial-webhook"
	bareRole    = "bench-bare-add-on"
	wholeRole   = "bench-manager-with-whole-cache"
	liveRole    = "bench-live-webhook"
)

// roles are the parts of the program besides the benchmark itself.
var roles = map[string]func(context.Context) error{
	trivialRole: serveTrivial,
	bareRole:    serveBare,
	liveRole:    serveLive,
	// The manager as it would be if its informers kept all that the API server sends.
	wholeRole: func(ctx context.Context) error {
		return app.NewCommand(func(o *app.Options) { o.CacheWhole = true }).ExecuteContext(ctx)
	},
}

// settings are what the flags say.
type settings struct {
	quick  bool
	rounds int
	rows   []string
	page   string
	pprof  string
	// manager is the program to measure; built from these sources if empty.
	manager string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := bench
	if role, ok := roles[filepath.Base(os.Args[0])]; ok {
		work = role
	}
	if err := work(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // Everything started was ended by then.
	}
}

func bench(ctx context.Context) error {
	log.SetLogger(logr.Discard())
	s := settings{}
	chosen := ""
	flag.BoolVar(&s.quick, "quick", false, "smaller numbers: minutes instead of one to two hours")
	flag.IntVar(&s.rounds, "rounds", 0, "how often each side is measured; 5 if 0, 3 with --quick")
	flag.StringVar(&chosen, "rows", "", "measure only these, separated by commas: "+strings.Join(rowNames(), ", "))
	flag.StringVar(&s.page, "page", "", "write the table into this page, between its marks")
	flag.StringVar(&s.pprof, "pprof", "", "write profiles of the manager (CPU, memory) and of kube-apiserver (CPU) for each row into this folder")
	flag.StringVar(&s.manager, "manager", "", "measure this program, such as an older one, instead of the manager of these sources")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("there are no arguments, only flags: %q", flag.Args())
	}
	if s.rounds == 0 {
		s.rounds = 5
		if s.quick {
			s.rounds = 3
		}
	}
	if _, err := os.Stat(s.manager); s.manager != "" && err != nil {
		return fmt.Errorf("--manager: %w", err)
	}
	if s.pprof != "" {
		if err := os.MkdirAll(s.pprof, 0o755); err != nil {
			return fmt.Errorf("--pprof: %w", err)
		}
	}
	if s.manager != "" && s.page != "" {
		return errors.New("--page is about the manager of these sources: leave out --manager")
	}
	if chosen != "" {
		s.rows = strings.Split(chosen, ",")
	}
	for _, name := range s.rows {
		if !slices.Contains(rowNames(), name) {
			return fmt.Errorf("--rows: there is no %q, only %s", name, strings.Join(rowNames(), ", "))
		}
	}
	return run(ctx, s)
}
