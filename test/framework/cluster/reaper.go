package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// reaperScript waits for the end of its standard input, that is, for the end of
// the process that holds the other side. The word "done" before it says that all
// was cleaned up. Otherwise the processes whose numbers were announced are killed
// and the folder goes; again for a while, because they may still be writing.
const reaperScript = `
pids=""
while read -r word; do
	case "$word" in
	done) exit 0 ;;
	*) pids="$pids $word" ;;
	esac
done
for pid in $pids; do
	case "$(ps -o args= -p "$pid" 2>/dev/null)" in *"$1"*) kill -9 "$pid" 2>/dev/null ;; esac
done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	rm -rf "$1" 2>/dev/null && [ ! -e "$1" ] && exit 0
	sleep 0.2
done
`

// reaper cleans up after a test process that had no chance to: it is a shell
// that outlives us.
type reaper struct {
	command *exec.Cmd
	input   io.WriteCloser
}

func startReaper(dir string) (*reaper, error) {
	command := exec.Command("/bin/sh", "-c", reaperScript, "drawbridge-reaper", dir)
	// A session of its own: neither ^C nor a terminal that closes may take it along.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Dir = "/"
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("connect to reaper: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return &reaper{command: command, input: input}, nil
}

// watch tells the reaper of a child. It is killed only if its command line still
// has the folder's name in it, so that a number used again hits nobody else.
func (r *reaper) watch(pid int) error {
	if _, err := fmt.Fprintln(r.input, pid); err != nil {
		return fmt.Errorf("tell reaper of process %d: %w", pid, err)
	}
	return nil
}

// dismiss ends the reaper; the folder stays as it is.
func (r *reaper) dismiss(ctx context.Context) error {
	_, err := fmt.Fprintln(r.input, "done")
	if err != nil {
		return fmt.Errorf("dismiss reaper: %w", err)
	}
	if err := r.input.Close(); err != nil {
		return fmt.Errorf("dismiss reaper: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("wait for reaper: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for reaper: %w", context.Cause(ctx))
	}
}
