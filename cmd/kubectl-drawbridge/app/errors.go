package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// Exit codes.
const (
	exitFailed      = 1
	exitInterrupted = 130 // 128 and SIGINT, as shells count.
)

// ExitCode is the program's exit code for what a command returned.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, cli.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitFailed
	}
}

const notInstalled = `error: the API drawbridge.dev/v1alpha1 is not installed in this cluster, or lacks a kind that this version of the plugin needs.
Install Drawbridge, or another --context:
  helm upgrade --install drawbridge charts/drawbridge --namespace drawbridge-system --create-namespace`

// Explain explains an error to the user: what is wrong, and what to do. It is empty if
// everything has been printed.
func Explain(err error) string {
	var status apierrors.APIStatus
	var unreachable *url.Error
	switch {
	case err == nil, errors.Is(err, cli.ErrInterrupted), errors.Is(err, context.Canceled):
		return ""
	case isNotInstalled(err):
		return notInstalled
	case apierrors.IsForbidden(err) && errors.As(err, &status):
		return fmt.Sprintf("error: no permission: %s\nThe ClusterRole drawbridge-operator allows all that this plugin does but scale.", status.Status().Message)
	case apierrors.IsUnauthorized(err):
		return "error: the API server does not know who you are: log in, or use another --context"
	case errors.As(err, &unreachable):
		return fmt.Sprintf("error: the API server cannot be reached: %v\nIs it the right --context?", unreachable)
	default:
		return "error: " + err.Error()
	}
}

// isNotInstalled reports whether the API server does not know one of our kinds.
func isNotInstalled(err error) bool {
	var noKind *meta.NoKindMatchError
	var noResource *meta.NoResourceMatchError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &noKind), errors.As(err, &noResource), meta.IsNoMatchError(err):
		return true
	case apierrors.IsNotFound(err) && errors.As(err, &status):
		// "the server could not find the requested resource": the error names nothing.
		details := status.Status().Details
		return details != nil && details.Name == "" && hasCause(details, metav1.CauseTypeUnexpectedServerResponse)
	}
	return false
}

func hasCause(details *metav1.StatusDetails, cause metav1.CauseType) bool {
	for _, c := range details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}
