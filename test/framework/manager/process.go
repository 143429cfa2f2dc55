//go:build unix

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessOptions of a manager in a process of its own. The zero value is fine.
type ProcessOptions struct {
	// Args are further flags. They win over the ones given by default: no leader
	// election, no delay at the shutdown, debug logs.
	Args []string
	// HealthAddr is where /healthz and /readyz are served; a free port when empty.
	HealthAddr string
	// Binary is the program; it is built when empty.
	Binary string
	// Log gets what the program prints, besides the log file.
	Log io.Writer
	// Patience is how long it may take until it is ready; 3 minutes when zero.
	Patience time.Duration
}

// Process is the built program.
type Process struct {
	// MetricsURL is where its Prometheus metrics are.
	MetricsURL string
	// HealthAddr is where /healthz and /readyz are.
	HealthAddr string
	// LogFile is where its log is.
	LogFile string

	command *exec.Cmd
	done    chan struct{}
	err     error
}

// StartProcess runs the built program with a kubeconfig of the chart's service
// account and returns when it is ready and the API server can call its webhook.
// The process goes on when ctx ends: use Stop or Kill.
func (i *Installation) StartProcess(ctx context.Context, o ProcessOptions) (*Process, error) {
	binary := o.Binary
	if binary == "" {
		built, err := Build(ctx)
		if err != nil {
			return nil, err
		}
		binary = built
	}
	kubeconfig, err := i.Cluster.KubeconfigFileForServiceAccount(ctx, i.Namespace, i.ServiceAccount)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	log, err := i.logFile()
	if err != nil {
		return nil, err
	}
	configuration := ""
	if i.webhook {
		configuration = i.Release
	}
	health, metrics := loopback(ports[0]), loopback(ports[1])
	if o.HealthAddr != "" {
		health = o.HealthAddr
	}
	args := append([]string{
		"--kubeconfig=" + kubeconfig,
		"--namespace=" + i.Namespace,
		"--webhook-host=127.0.0.1",
		"--webhook-port=" + strconv.Itoa(i.WebhookPort),
		"--webhook-cert-secret=" + i.Release + "-webhook-cert",
		"--webhook-configuration=" + configuration,
		"--health-addr=" + health,
		"--metrics-addr=" + metrics,
		"--metrics-protected=false",
		"--leader-elect=false",
		"--shutdown-delay=0s",
		"--log-level=debug",
		"--log-format=console",
	}, o.Args...)

	p := &Process{HealthAddr: health, MetricsURL: "http://" + metrics + "/metrics", LogFile: log.Name(), done: make(chan struct{})}
	p.command = exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	p.command.Stderr = log
	if o.Log != nil {
		p.command.Stderr = io.MultiWriter(log, o.Log)
	}
	p.command.Stdout = p.command.Stderr
	p.command.SysProcAttr = childAttributes()
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start manager: %w", err), log.Close())
	}
	go func() {
		defer close(p.done)
		p.err = errors.Join(p.command.Wait(), log.Close())
	}()
	if err := i.waitReady(ctx, health, cmp.Or(o.Patience, readyTimeout), p.done, func() error { return p.err }); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (its log: %s)", err, p.LogFile), p.Kill())
	}
	return p, nil
}

// Stop sends SIGTERM and returns the error the program ended with.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("stop manager: %w", ctx.Err())
	}
}

// Kill sends SIGKILL and waits for the process to be gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Signal sends a signal, for example SIGSTOP. A process that has ended is no error.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal manager: %w", err)
	}
	return nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Metric reads one series of its metrics, labels included; 0 if there is none.
func (p *Process) Metric(ctx context.Context, series string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.MetricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is that of a process that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.command.ProcessState.ExitCode()
}
