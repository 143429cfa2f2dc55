package cluster

import (
	"context"
	"io"
	"path/filepath"
)

// kubectlPart is the name by which the binary is kubectl.
const kubectlPart = "kubectl"

// KubectlOptions say as whom kubectl runs and who watches. The zero value is the
// user "admin", who may do everything.
type KubectlOptions struct {
	// User and Groups are whom kube-apiserver sees, by a real certificate.
	User   string
	Groups []string

	// Kubeconfig is the path of a file to use instead of one for User and Groups.
	Kubeconfig string

	// Stdin is given to kubectl. Default: nothing.
	Stdin io.Reader

	// OnLine, if set, is called with each line as it comes, one at a time.
	OnLine func(Line)
}

// Kubectl runs kubectl to its end. Errors are those of [Cluster.StartKubectl] and of
// [Program.Wait]; that kubectl exits with another code than 0 is none of them.
func (c *Cluster) Kubectl(ctx context.Context, options KubectlOptions, args ...string) (Result, error) {
	running, err := c.StartKubectl(ctx, options, args...)
	if err != nil {
		return Result{}, err
	}
	return running.Wait()
}

// StartKubectl starts kubectl, of the cluster's version and without any settings of
// the person who runs the test, and returns at once. It is killed when ctx ends.
func (c *Cluster) StartKubectl(ctx context.Context, options KubectlOptions, args ...string) (*Program, error) {
	kubeconfig := options.Kubeconfig
	if kubeconfig == "" {
		user, groups := options.User, options.Groups
		if user == "" {
			user, groups = adminUser, []string{mastersGroup}
		}
		var err error
		if kubeconfig, err = c.KubeconfigFile(user, groups...); err != nil {
			return nil, err
		}
	}
	return c.StartProgram(ctx, ProgramOptions{
		// By the environment and not by a flag, so that plugins see it as well.
		Env:    append(c.environment(), "KUBECONFIG="+kubeconfig),
		Stdin:  options.Stdin,
		OnLine: options.OnLine,
	}, filepath.Join(c.dir, "bin", kubectlPart), args...)
}
