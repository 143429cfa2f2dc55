package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Patience is waiting.Patience.
const Patience = waiting.Patience

// Wait is waiting.For, and Eventually waiting.Eventually.
var (
	Wait       = waiting.For
	Eventually = waiting.Eventually
)

// ForTest starts a control plane for one test or benchmark and stops it at its
// end. When the test has failed, the logs are kept and it says where.
func ForTest(tb testing.TB, options Options) *Cluster {
	tb.Helper()
	if options.Logf == nil {
		options.Logf = tb.Logf
	}
	c, err := Start(tb.Context(), options)
	if err != nil {
		tb.Fatalf("start cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			kept, err := c.KeepLogs(tb.Name())
			tb.Logf("logs of the cluster are in %s (error: %v)", kept, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			tb.Errorf("stop cluster: %v", err)
		}
	})
	return c
}

// Main runs the tests of a package on one control plane and returns the exit code
// for os.Exit. use, if not nil, is given the cluster before the first test; an error of
// it fails the package. When tests have failed, the logs are kept and standard error
// says where.
func Main(m *testing.M, options Options, use func(*Cluster) error) int {
	return MainThen(m, options, use, nil)
}

// MainThen is Main with something to check after the last test, if all have passed; an
// error of then fails the package.
func MainThen(m *testing.M, options Options, use, then func(*Cluster) error) (code int) {
	log.SetLogger(logr.Discard()) // Its absence would be complained about half a minute into the tests.
	if options.Logf == nil {
		options.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	c, err := Start(context.Background(), options)
	if err != nil {
		fmt.Fprintf(os.Stderr, "start cluster: %v\n", err)
		return 1
	}
	defer func() { // Deferred, so that a panic in use leaves nothing behind either.
		if code != 0 {
			kept, err := c.KeepLogs(filepath.Base(os.Args[0]))
			fmt.Fprintf(os.Stderr, "logs of the cluster are in %s (error: %v)\n", kept, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "stop cluster: %v\n", err)
			code = max(code, 1)
		}
	}()
	code = 1 // Until the tests say otherwise.
	if use != nil {
		if err := use(c); err != nil {
			fmt.Fprintf(os.Stderr, "prepare cluster: %v\n", err)
			return code
		}
	}
	if code = m.Run(); code != 0 || then == nil {
		return code
	}
	if err := then(c); err != nil {
		fmt.Fprintf(os.Stderr, "after the tests: %v\n", err)
		code = 1
	}
	return code
}

// emptied are the collections that a namespace is emptied of when its test has ended: what somebody
// works on, owners first, so that nobody makes anew what is gone. A kind that is not there is no error.
var emptied = []string{
	"apis/apps/v1/*/deployments", "apis/apps/v1/*/statefulsets", "apis/apps/v1/*/daemonsets", "apis/apps/v1/*/replicasets",
	"apis/batch/v1/*/jobs",
	"apis/drawbridge.dev/v1alpha1/*/evacuationhooks", "apis/drawbridge.dev/v1alpha1/*/evictionbudgets",
	"apis/drawbridge.dev/v1alpha1/*/evictionrequests",
	"apis/kubevirt.io/v1/*/virtualmachineinstances", "apis/kubevirt.io/v1/*/virtualmachineinstancemigrations",
	"api/v1/*/pods", "apis/policy/v1/*/poddisruptionbudgets",
}

// Namespace creates a namespace named after the test, waits until pods can be
// created in it, and empties it at the end of the test without waiting. It is not
// deleted: the namespace controller asks for each kind of the API server twice, in
// several rounds, which was a fifth of all requests of a suite.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	namespace, err := c.client.CoreV1().Namespaces().Create(tb.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "t-" + dnsLabel(tb.Name(), 40) + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("create namespace: %v", err)
	}
	tb.Cleanup(func() {
		// The test's own context has ended by now. On a busy machine each call may take seconds.
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		background := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)} // Jobs keep their pods otherwise.
		for _, collection := range emptied {
			path := "/" + strings.Replace(collection, "*", "namespaces/"+namespace.Name, 1)
			err := c.client.CoreV1().RESTClient().Delete().AbsPath(path).Body(background).Do(ctx).Error()
			if err != nil && !apierrors.IsNotFound(err) {
				tb.Errorf("empty namespace of %s: %v", path, err)
			}
		}
	})
	if err := c.waitServiceAccount(tb.Context(), namespace.Name, "default"); err != nil {
		tb.Fatal(err)
	}
	return namespace.Name
}
