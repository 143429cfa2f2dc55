// Package execcall runs a command in a container of a pod.
package execcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// maxOutput is how much of the end of the output is kept, in bytes.
	maxOutput = 1 << 10
	// defaultTimeout limits a command whose context has no deadline.
	defaultTimeout = time.Minute
)

// Call is one command.
type Call struct {
	Namespace, Pod, Container string
	// Command and its arguments. No shell reads them.
	Command []string
}

// Answer is how a command ended.
type Answer struct {
	// ExitCode of the command: 0 is success.
	ExitCode int
	// Output is the last 1 KiB of stdout and stderr together, as valid UTF-8.
	Output string
}

// Executor runs commands. It may be used by several goroutines; each command has a
// connection of its own.
//
// It speaks WebSockets (v5.channel.k8s.io), which every API server since Kubernetes 1.30
// does, and falls back to nothing: SPDY is deprecated, and a second attempt after a
// failure could run the command twice. The manager needs the verbs get and create on
// pods/exec: a WebSocket begins with a GET, and since Kubernetes 1.35 the API server also
// asks for create.
//
// The API server has no precondition for exec: a pod of the same name may have taken the
// place of the one that is meant. Look at its UID shortly before.
//
// Where the API server translates WebSockets to SPDY, it cannot tell a kubelet that dies
// in the middle of a command from the end of the command, and may report exit code 0
// (kubernetes/kubectl#1726). Who must be sure looks at what the command was to achieve.
type Executor struct {
	config *rest.Config
	client rest.Interface
}

// New returns an Executor that uses the credentials of config.
func New(config *rest.Config) (*Executor, error) {
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of pods: %w", err)
	}
	return &Executor{config: rest.CopyConfig(config), client: core.RESTClient()}, nil
}

// Run runs a command and waits for its end. Every exit code is an answer. An error says
// that the command could not be run, or that nobody knows how it ended; the answer then
// has the output until there. If the API server refused it, apierrors tells why. When ctx
// ends, so does the connection, and the error wraps the cause of ctx; the command itself
// may go on in the container.
func (e *Executor) Run(ctx context.Context, call Call) (Answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	output := newTail(maxOutput)
	code, err := e.run(ctx, call, output)
	return Answer{ExitCode: code, Output: output.String()}, err
}

// run runs a command and returns its exit code.
func (e *Executor) run(ctx context.Context, call Call, output io.Writer) (int, error) {
	what := fmt.Sprintf("exec in container %s of pod %s/%s", call.Container, call.Namespace, call.Pod)
	url := e.client.Get().Namespace(call.Namespace).Resource("pods").Name(call.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: call.Container, Command: call.Command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(e.config, "GET", url.String())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: output, Stderr: output})
	var exit utilexec.CodeExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.Code, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	default:
		return 0, fmt.Errorf("%s: %w", what, refusal(err))
	}
}

// refusal returns the API server's own error, which client-go hides in one that says that
// the connection could not be upgraded.
func refusal(err error) error {
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(err, &upgrade) && upgrade.Cause != nil {
		return upgrade.Cause
	}
	return err
}
