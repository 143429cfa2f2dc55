//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Replicas of the manager.
const Replicas = 2

// replica is a manager in a process of its own which somebody starts again when it
// ends, as a kubelet does.
type replica struct {
	cluster *cluster.Cluster
	binary  string
	args    []string
	health  string
	// clock has the error of its clock, see test/chaos/cmd/manager.
	clock string
	log   *os.File
	tellf func(format string, args ...any)

	ctx    context.Context //nolint:containedctx // The life of the replica.
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	program *cluster.Program
	held    bool // Not to be started again.
	changed chan struct{}
}

// restartDelay is how long the kubelet takes.
const restartDelay = 200 * time.Millisecond

func startReplica(w *World, number int, args []string) (*replica, error) {
	name := fmt.Sprintf("manager-%d-%d", w.runs, number)
	log, err := os.Create(filepath.Join(w.Cluster.Dir(), "logs", name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create log of the manager: %w", err)
	}
	clock := filepath.Join(w.Cluster.Dir(), name+".clock")
	if err := os.WriteFile(clock, []byte("0"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write the clock's error: %w", err), log.Close())
	}
	health := loopback(w.healthPorts[number])
	r := &replica{
		cluster: w.Cluster, binary: w.manager, health: "http://" + health, clock: clock, log: log,
		tellf: func(format string, args ...any) { w.tellf(fmt.Sprintf("manager %d ", number)+format, args...) },
		args: append([]string{
			"--kubeconfig=" + w.kubeconfig,
			"--namespace=" + w.inst.Namespace,
			"--webhook-host=127.0.0.1",
			"--webhook-port=" + strconv.Itoa(w.webhookPorts[number]),
			"--webhook-cert-secret=" + w.inst.Release + "-webhook-cert",
			"--webhook-configuration=" + w.inst.Release,
			"--health-addr=" + health,
			"--metrics-addr=0",
			"--clock-error-file=" + clock,
		}, args...),
		changed: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.group.Go(r.supervise)
	return r, nil
}

// supervise keeps a process running.
func (r *replica) supervise() {
	for r.ctx.Err() == nil {
		program := r.launch()
		if program == nil {
			select {
			case <-r.changed:
			case <-r.ctx.Done():
			}
			continue
		}
		select {
		case <-program.Done():
			r.tellf("has ended")
			rest(r.ctx, restartDelay)
		case <-r.ctx.Done():
			<-program.Done() // ctx kills it.
		}
	}
}

// launch starts a process unless the replica is held.
func (r *replica) launch() *cluster.Program {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return nil
	}
	program, err := r.cluster.StartProgram(r.ctx, cluster.ProgramOptions{OnLine: r.write}, r.binary, r.args...)
	if err != nil {
		r.tellf("cannot be started: %v", err)
		r.held = true
		return nil
	}
	r.program = program
	r.tellf("starts as process %d", program.PID())
	return program
}

func (r *replica) write(line cluster.Line) { _, _ = r.log.WriteString(line.Text + "\n") } // For people.

// hold ends the process with a signal and keeps it from coming back.
func (r *replica) hold(signal syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
	return r.signal(signal)
}

// release lets it come back.
func (r *replica) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = false
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *replica) pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.program.Pause()
}

func (r *replica) resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.program.Resume()
}

// skew sets the error of the clock.
func (r *replica) skew(by time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.WriteFile(r.clock, []byte(strconv.FormatInt(by.Milliseconds(), 10)), 0o600); err != nil {
		return fmt.Errorf("write the clock's error: %w", err)
	}
	return r.signal(syscall.SIGUSR1)
}

// signal is sent to the process if there is one. The lock is held.
func (r *replica) signal(signal syscall.Signal) error {
	if r.program == nil {
		return nil
	}
	select {
	case <-r.program.Done():
		return nil
	default:
	}
	if err := syscall.Kill(r.program.PID(), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal manager: %w", err)
	}
	return nil
}

// ready reports whether the replica says that it is.
func (r *replica) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.health+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", r.health, resp.Status)
	}
	return nil
}

// stop ends the replica for good.
func (r *replica) stop() error {
	r.cancel()
	r.group.Wait()
	return r.log.Close()
}
