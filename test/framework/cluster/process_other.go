//go:build !linux

package cluster

import "syscall"

// childAttributes relies on the reaper alone to end children whose parent was
// killed: only Linux can tie a child's life to its parent's.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped does not wait: only Linux tells without taking the news from whoever
// waits for the child.
func awaitStopped(int) error { return nil }
