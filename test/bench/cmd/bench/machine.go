//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine describes what the figures were measured on.
func machine(kube string, s settings) string {
	size := "full"
	if s.quick {
		size = "quick"
	}
	revision := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		revision = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Measured on %s at revision %s: %d CPUs (%s), %s of memory, %s/%s, %s, Kubernetes %s; %s run, medians of %d rounds.\n"+
		"Everything runs on this one machine: etcd, API server, controllers, fake nodes, the callers, and Drawbridge.\n",
		time.Now().UTC().Format(time.DateOnly), revision, runtime.NumCPU(), procField("/proc/cpuinfo", "model name"), memory(),
		runtime.GOOS, runtime.GOARCH, runtime.Version(), kube, size, s.rounds)
}

// procField is the first value of that name in a file of /proc, "unknown" if there
// is none.
func procField(file, name string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for l := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memory() string {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 64)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// clockTick is the unit of the times in /proc/PID/stat; 100 per second on every
// Linux that Go runs on.
const clockTick = time.Second / 100

// cpuOf is the CPU time a process has used so far.
func cpuOf(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	// The second field is a name in parentheses, which may hold spaces.
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time: unexpected %q", content)
	}
	var total time.Duration
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		total += time.Duration(ticks) * clockTick
	}
	return total, nil
}
