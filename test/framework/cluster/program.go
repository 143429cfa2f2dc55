package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ProgramOptions say what a program is given and who watches it.
type ProgramOptions struct {
	// Env is its whole environment; nil is that of the cluster's own components,
	// in which nothing points to another cluster or to a proxy.
	Env []string

	// Stdin is given to the program. Default: nothing.
	Stdin io.Reader

	// OnLine, if set, is called with each line as it comes, one at a time.
	OnLine func(Line)
}

// Line is a line of a program's output.
type Line struct {
	// Time is when it was read.
	Time time.Time
	// Stderr tells standard error from standard output.
	Stderr bool
	// Text of the line, without its newline.
	Text string
}

// Result is what is left of a program that has ended.
type Result struct {
	Stdout, Stderr string
	// ExitCode of the process; -1 when a signal ended it.
	ExitCode int

	command string
}

// Err is an error with all that the program wrote if it did not exit with 0.
func (r Result) Err() error {
	if r.ExitCode == 0 {
		return nil
	}
	return fmt.Errorf("%s: exit code %d\n%s%s", r.command, r.ExitCode, r.Stdout, r.Stderr)
}

// Program is a program that was started: kubectl, or anything a test runs beside the
// cluster. Its methods may be called from several goroutines.
type Program struct {
	ctx     context.Context //nolint:containedctx // The life of the process, as in exec.CommandContext.
	process *process
	command string

	telling sync.Mutex // Makes the calls of onLine one at a time.
	onLine  func(Line)

	mu      sync.Mutex
	lines   []Line
	changed chan struct{} // Closed and replaced with each line.

	stdout, stderr *lineWriter
}

// StartProgram starts a program and returns at once. It is killed when ctx ends, and
// on Linux also when this process dies. It runs in the present folder.
func (c *Cluster) StartProgram(ctx context.Context, options ProgramOptions, path string, args ...string) (*Program, error) {
	p := &Program{
		ctx:     ctx,
		command: strings.Join(append([]string{filepath.Base(path)}, args...), " "),
		onLine:  options.OnLine,
		changed: make(chan struct{}),
	}
	p.stdout = &lineWriter{program: p}
	p.stderr = &lineWriter{program: p, stderr: true}
	command := exec.CommandContext(ctx, path, args...)
	command.Env = options.Env
	if command.Env == nil {
		command.Env = c.environment()
	}
	command.Stdin = options.Stdin
	command.Stdout, command.Stderr = p.stdout, p.stderr
	command.WaitDelay = 5 * time.Second // For a Stdin that blocks.
	process, err := spawn(command)
	if err != nil {
		return nil, err
	}
	p.process = process
	return p, c.reaper.watch(command.Process.Pid)
}

// PID is the number of its process.
func (p *Program) PID() int { return p.process.command.Process.Pid }

// Interrupt sends what ^C sends (SIGINT). It does not wait.
func (p *Program) Interrupt() error { return p.process.signal(syscall.SIGINT) }

// Kill ends the program the hard way (SIGKILL). It does not wait.
func (p *Program) Kill() error { return p.process.signal(syscall.SIGKILL) }

// Pause stops the program where it is (SIGSTOP).
func (p *Program) Pause() error { return p.process.pause() }

// Resume lets a paused program go on.
func (p *Program) Resume() error { return p.process.signal(syscall.SIGCONT) }

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.process.done }

// Lines are those read so far, of both outputs, in the order in which they came.
func (p *Program) Lines() []Line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Line(nil), p.lines...)
}

// WaitLine returns the first line, already read or still to come, with this text in
// it. Error: ctx ended, or the program ended without such a line; it has all lines.
func (p *Program) WaitLine(ctx context.Context, text string) (Line, error) {
	for next := 0; ; {
		ended := p.process.ended() // Before the lines, so that the last of them count.
		p.mu.Lock()
		lines, changed := p.lines, p.changed
		p.mu.Unlock()
		for ; next < len(lines); next++ {
			if strings.Contains(lines[next].Text, text) {
				return lines[next], nil
			}
		}
		if ended {
			return Line{}, fmt.Errorf("%s ended without a line with %q:\n%s", p.command, text, joinLines(lines))
		}
		select {
		case <-changed:
		case <-p.process.done:
		case <-ctx.Done():
			return Line{}, fmt.Errorf("wait for a line with %q of %s: %w; so far:\n%s", text, p.command, context.Cause(ctx), joinLines(lines))
		}
	}
}

// Wait waits until the program has ended. That it did so with another code than 0 is
// no error here: see [Result.Err]. Error: ctx ended, so that it was killed, or its
// input or output broke.
func (p *Program) Wait() (Result, error) {
	<-p.process.done
	result := Result{
		Stdout:   p.stdout.all.String(),
		Stderr:   p.stderr.all.String(),
		ExitCode: p.process.command.ProcessState.ExitCode(),
		command:  p.command,
	}
	var exit *exec.ExitError
	switch err := p.process.err; {
	case p.ctx.Err() != nil && result.ExitCode != 0:
		return result, fmt.Errorf("%s: %w\n%s%s", p.command, context.Cause(p.ctx), result.Stdout, result.Stderr)
	case err == nil, errors.As(err, &exit):
		return result, nil
	default:
		return result, fmt.Errorf("%s: %w", p.command, err)
	}
}

func (p *Program) add(line Line) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	p.lines = append(p.lines, line)
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if p.onLine != nil {
		p.onLine(line)
	}
}

func joinLines(lines []Line) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line.Text)
		text.WriteByte('\n')
	}
	return text.String()
}

// lineWriter cuts one output of the process into lines. exec calls it from one
// goroutine, and no longer once the process is done.
type lineWriter struct {
	program *Program
	stderr  bool
	all     bytes.Buffer
	partial []byte
}

// Write never fails. A last line without a newline is in Result, not among the lines.
func (w *lineWriter) Write(output []byte) (int, error) {
	w.all.Write(output)
	w.partial = append(w.partial, output...)
	for {
		text, rest, found := bytes.Cut(w.partial, []byte("\n"))
		if !found {
			return len(output), nil
		}
		w.partial = rest
		w.program.add(Line{Time: realClock.Now(), Stderr: w.stderr, Text: string(text)})
	}
}
