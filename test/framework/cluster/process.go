package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// process is one run of a child process.
type process struct {
	command *exec.Cmd
	done    chan struct{} // Closed when the process has ended.
	err     error         // How it ended; read after done.
}

// spawn starts a child in a process group of its own, so that ^C at a terminal
// reaches only us and we end things in order.
//
// The goroutine that starts it keeps its thread for as long as the child lives:
// on Linux the child is to be killed when its parent dies, and the kernel takes
// the starting thread for the parent.
func spawn(command *exec.Cmd) (*process, error) {
	handInterruptsOn()
	command.SysProcAttr = childAttributes()
	p := &process{command: command, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = command.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Args[0], err)
	}
	return p, nil
}

// handInterruptsOn lets children be interrupted although we are not to be. A shell
// without job control lets what it starts in the background ignore SIGINT, and that is
// inherited. A signal that somebody is notified of is not: nobody reads it here, so we
// go on ignoring it.
func handInterruptsOn() {
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
}

// signal sends a signal to the process. A process that has ended is no error.
func (p *process) signal(s os.Signal) error {
	if err := p.command.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s (%v): %w", p.command.Args[0], s, err)
	}
	return nil
}

// pause stops the process where it is and returns when it has stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil || p.ended() {
		return err
	}
	return awaitStopped(p.command.Process.Pid)
}

// kill ends the process the hard way, stopped or not, and waits until it is gone.
func (p *process) kill(ctx context.Context) error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.command.Args[0], context.Cause(ctx))
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
