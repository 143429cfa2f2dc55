//go:build unix

// Command manager is cmd/drawbridge with a clock that goes wrong on command: the
// number of milliseconds in the file --clock-error-file is read at the start and at
// every SIGUSR1.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/zapr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := app.DefaultOptions()
	file := ""
	cmd := &cobra.Command{
		Use:           "manager",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := logger()
			o.Logger = zapr.NewLogger(log)
			ctrl.SetLogger(o.Logger)
			klog.SetLogger(o.Logger)
			restore, err := zap.RedirectStdLogAt(log, zap.DebugLevel)
			if err != nil {
				return err
			}
			defer restore()
			wrong := clock.New()
			o.Clock = wrong
			if err := follow(cmd.Context(), wrong, file, o.Logger.Error); err != nil {
				return err
			}
			conf, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			for _, bug := range bugs {
				bug(&o, conf)
			}
			return app.Run(cmd.Context(), conf, o)
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, "clock-error-file", "", "File with the error of the clock in milliseconds.")
	cmd.Flags().AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
	return cmd
}

// logger writes lines for people, those of debugging included.
func logger() *zap.Logger {
	encoder := zap.NewDevelopmentEncoderConfig()
	encoder.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(os.Stderr), zapcore.Level(-1)))
}

// follow sets the clock to what the file says, now and at every SIGUSR1.
func follow(ctx context.Context, c *clock.Clock, file string, complain func(error, string, ...any)) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	if err := set(c, file); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
				if err := set(c, file); err != nil {
					complain(err, "Cannot set the clock")
				}
			}
		}
	}()
	return nil
}

func set(c *clock.Clock, file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the clock's error: %w", err)
	}
	ms, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return fmt.Errorf("read the clock's error: %w", err)
	}
	c.Advance(time.Duration(ms)*time.Millisecond - c.Offset())
	return nil
}
