package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// ComponentName is the name of a part of the control plane.
type ComponentName string

// The parts of the control plane.
const (
	Etcd              ComponentName = "etcd"
	APIServer         ComponentName = "kube-apiserver"
	ControllerManager ComponentName = "kube-controller-manager"
	Scheduler         ComponentName = "kube-scheduler"
	Kwok              ComponentName = "kwok"
)

// componentOrder is the order in which the components need each other.
var componentOrder = []ComponentName{Etcd, APIServer, ControllerManager, Scheduler, Kwok}

// errPortTaken says that a component ended because another process has its port.
var errPortTaken = errors.New("port is taken")

const (
	// probeTimeout bounds one question for health: a paused component never answers, and one on
	// a busy machine may need a while.
	probeTimeout = 10 * time.Second
	// logTail is how much of a log an error shows, in bytes.
	logTail = 4 << 10
)

// Component is a part of the control plane. It keeps its ports, its data and its
// log over restarts. Its methods may be called from several goroutines, but what
// kills and what starts should not overlap.
type Component struct {
	name      ComponentName
	args      []string
	healthURL string
	logPath   string
	cluster   *Cluster
	// whenEnded, if set, is called each time after a process has ended.
	whenEnded func()

	mu      sync.Mutex
	process *process // The last one started; nil before the first.
	killed  bool     // We ended it.
}

// Name is the component's name, as given to [Cluster.Component].
func (c *Component) Name() ComponentName { return c.name }

// PID is the number of its last process, 0 if there was none.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.command.Process.Pid
}

// Start starts the component and waits until it is ready, at most two minutes.
// Error: it is running already, it ended (the error has the end of its log), or it
// did not become ready in time.
func (c *Component) Start(ctx context.Context) error {
	if err := c.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not ready within %s", bootTimeout))
	defer cancel()
	return c.WaitReady(ctx)
}

func (c *Component) launch() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && !c.process.ended() {
		return fmt.Errorf("start %s: it is running", c.name)
	}
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }() // The child has its own descriptor.
	command := exec.Command(c.cluster.binaries.of(string(c.name)), c.args...)
	command.Args[0] = string(c.name) // Decides which part of the binary runs.
	command.Dir = c.cluster.dir
	command.Env = c.cluster.environment()
	command.Env = append(command.Env, c.memory()...)
	command.Stdout, command.Stderr = log, log
	if c.process != nil && c.whenEnded != nil {
		c.whenEnded() // Again, in case the process had ended by itself.
	}
	process, err := spawn(command)
	if err != nil {
		return err
	}
	c.process, c.killed = process, false
	return c.cluster.reaper.watch(command.Process.Pid)
}

// memory says how often the component collects garbage. Memory costs nothing here, and its
// collection a fifth of the CPU.
func (c *Component) memory() []string {
	if limit := c.cluster.options.MemoryLimits[c.name]; limit != "" {
		return []string{"GOMEMLIMIT=" + limit}
	}
	return []string{"GOGC=400", "GOMEMLIMIT=2GiB"}
}

// WaitReady waits until the component answers that it is healthy. Error: ctx
// ended, or the component is not running.
func (c *Component) WaitReady(ctx context.Context) error {
	err := waiting.For(ctx, string(c.name), func(ctx context.Context) error {
		if err := c.notRunning(); err != nil {
			return waiting.InVain(err)
		}
		return c.probe(ctx)
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.logEnd())
	}
	return nil
}

func (c *Component) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.healthURL, nil)
	if err != nil {
		return err
	}
	response, err := c.cluster.health.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, logTail))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

// Kill ends the process as a power cut would (SIGKILL), and returns when it is
// gone. A component that is not running is no error.
func (c *Component) Kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil || c.process.ended() {
		return nil
	}
	c.killed = true
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, fmt.Errorf("still there after %s", killTimeout))
	defer cancel()
	if err := c.process.kill(ctx); err != nil {
		return err
	}
	if c.whenEnded != nil {
		c.whenEnded()
	}
	return nil
}

// Restart kills the component, starts it again and waits until it is ready.
func (c *Component) Restart(ctx context.Context) error {
	if err := c.Kill(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Pause stops the process where it is (SIGSTOP): connections stay open and nobody
// answers on them. Error: it is not running.
func (c *Component) Pause() error { return c.signal((*process).pause) }

// Resume lets a paused process go on. Error: it is not running.
func (c *Component) Resume() error {
	return c.signal(func(p *process) error { return p.signal(syscall.SIGCONT) })
}

func (c *Component) signal(send func(*process) error) error {
	if err := c.notRunning(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return send(c.process)
}

// notRunning explains why there is no process, if there is none.
func (c *Component) notRunning() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.process == nil:
		return fmt.Errorf("%s was not started", c.name)
	case !c.process.ended():
		return nil
	case c.killed:
		return fmt.Errorf("%s was killed", c.name)
	default:
		return c.unexpectedEnd()
	}
}

// diedByItself is an error if the process has ended and nobody here ended it.
func (c *Component) diedByItself() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil || !c.process.ended() || c.killed {
		return nil
	}
	return c.unexpectedEnd()
}

func (c *Component) unexpectedEnd() error {
	end := c.logEnd()
	err := fmt.Errorf("%s ended by itself (%v):\n%s", c.name, c.process.err, end)
	if strings.Contains(end, "address already in use") {
		err = errors.Join(errPortTaken, err)
	}
	return err
}

// logEnd is the last part of the component's log, from the beginning of a line.
func (c *Component) logEnd() string {
	content, err := os.ReadFile(c.logPath)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	if len(content) > logTail {
		content = content[len(content)-logTail:]
		if _, whole, found := bytes.Cut(content, []byte("\n")); found {
			content = whole
		}
	}
	return string(content)
}
