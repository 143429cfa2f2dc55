package cluster

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when each thread of a child that got SIGSTOP has stopped, or
// when the child has ended: the signal is only noted when it is sent. What is to be
// waited for stays so for whoever waits for the child.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ECHILD): // It has ended.
			return nil
		default:
			return fmt.Errorf("wait until process %d stops: %w", pid, err)
		}
	}
}
