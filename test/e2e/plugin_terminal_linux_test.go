//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// screen is a terminal of 80 columns, with all that was ever written to it.
type screen struct {
	// slave is what a program has as its standard output.
	slave *os.File
	// read is closed when nothing more comes.
	read chan struct{}

	mu      sync.Mutex
	written bytes.Buffer
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

func openScreen(t *testing.T) *screen {
	t.Helper()
	master := must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number := must(unix.IoctlGetUint32(fd, unix.TIOCGPTN))(t)
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	s := &screen{slave: must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t), read: make(chan struct{})}
	go func() {
		defer close(s.read)
		part := make([]byte, 1<<12)
		for {
			n, err := master.Read(part)
			s.mu.Lock()
			s.written.Write(part[:n])
			s.mu.Unlock()
			if err != nil {
				return // No program has the terminal any more.
			}
		}
	}()
	return s
}

// onScreen runs the plugin on a terminal until it has printed what is wanted, then interrupts it,
// unless it has ended, and returns all that it wrote to the terminal.
func onScreen(t *testing.T, wanted string, env []string, args ...string) string {
	t.Helper()
	if err := bindOperators(); err != nil {
		t.Fatal(err)
	}
	s := openScreen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, must(manager.BuildPlugin(t.Context()))(t), args...)
	command.Env = append([]string{
		"KUBECONFIG=" + must(kube.KubeconfigFile("olga", operators))(t), "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=xterm", "LANG=C.UTF-8",
	}, env...)
	var said bytes.Buffer
	command.Stdout, command.Stderr = s.slave, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.slave.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("%q to print %q", args, wanted), func(context.Context) error {
		if !strings.Contains(s.text(), wanted) {
			return textError(s.text())
		}
		return nil
	})
	if err := command.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	if err := command.Wait(); err != nil && command.ProcessState.ExitCode() != 130 {
		t.Errorf("%q: %v: %s", args, err, said.String())
	}
	<-s.read
	return s.text()
}

var escape = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// fits wants that no line is wider than the screen, and that there are colors or not.
func fits(t *testing.T, printed string, colors bool) {
	t.Helper()
	for line := range strings.Lines(escape.ReplaceAllString(printed, "")) {
		if line = strings.Trim(line, "\r\n"); text.Cells(line) > 80 {
			t.Errorf("%d columns: %q", text.Cells(line), line)
		}
	}
	if got := strings.Contains(printed, "\x1b[2m"); got != colors {
		t.Errorf("in colors: %t, want %t:\n%q", got, colors, printed)
	}
}

// On a terminal of 80 columns no line wraps, however long names are. In a pipe names are whole, and
// nothing moves the cursor or has a color.
func TestThePluginOnATerminal(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	const name = "settlement-reconciliation-worker-7d9c5b6f4d-x2z9q"
	pod := createPod(t, builder.Pod(namespace, name).NodeSelector(testLabel, namespace).Interceptors(silent).Obj())
	system := "--drawbridge-namespace=" + inst.Namespace

	plan := onScreen(t, "dry run", nil, "drain", node, "--force", "--dry-run=client", system)
	fits(t, plan, true)
	fits(t, onScreen(t, "x2z9q", nil, "drain", node, "--force", system), true)
	waitRequest(t, pod, "intercepted", activeIs(silent))
	fits(t, onScreen(t, "x2z9q", []string{"NO_COLOR=1"}, "drain", node, "--force", system), false)
	fits(t, onScreen(t, "x2z9q", nil, "status", node, system), true)
	wide := onScreen(t, namespace+"/"+name, nil, "status", node, "-o", "wide", system)
	if !strings.Contains(wide, "REQUESTERS") {
		t.Errorf("-o wide:\n%s", wide)
	}

	for _, args := range [][]string{{"status", node}, {"drain", node, "--force", "--dry-run=client"}} {
		if printed := plugin(t, args...); !strings.Contains(printed, name) || strings.Contains(printed, "\x1b") || strings.Contains(printed, "…") {
			t.Errorf("%q in a pipe:\n%s", args, printed)
		}
	}
	plugin(t, "cancel", node)
	waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
	plugin(t, "uncordon", node)
}
