package cluster_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// patience is how long anything may take on a machine that does other work too.
const patience = 2 * time.Minute

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(beVictim())
	}
	if os.Getenv(cluster.IgnoringEnv) != "" {
		os.Exit(m.Run())
	}
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 2, RequestLog: true, LocalExec: true}.WithNative(), func(c *cluster.Cluster) error {
		shared = c
		return nil
	}))
}

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

func clientFor(tb testing.TB, config *rest.Config) kubernetes.Interface {
	tb.Helper()
	return must(kubernetes.NewForConfig(config))(tb)
}

// create creates a pod and waits until it is Ready.
func createReady(tb testing.TB, c *cluster.Cluster, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	created := must(c.Client().CoreV1().Pods(pod.Namespace).Create(tb.Context(), pod, metav1.CreateOptions{}))(tb)
	return waitReady(tb, c, created.Namespace, created.Name, "")
}

// waitReady waits until there is a Ready pod of this name with another UID than not.
func waitReady(tb testing.TB, c *cluster.Cluster, namespace, name, not string) *corev1.Pod {
	tb.Helper()
	var pod *corev1.Pod
	cluster.Eventually(tb, "pod "+name+" is ready", func(ctx context.Context) (err error) {
		pod, err = c.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if string(pod.UID) == not {
			return fmt.Errorf("still the pod with UID %s", not)
		}
		if !isReady(pod) {
			return fmt.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func evict(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	return client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
}
