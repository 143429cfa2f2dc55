package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

func TestPodsComeAndGoQuickly(t *testing.T) {
	namespace := shared.Namespace(t)
	pods := shared.Client().CoreV1().Pods(namespace)
	started := time.Now()
	pod := createReady(t, shared, builder.Pod(namespace, "web").GracePeriod(300).Obj())
	t.Logf("ready after %s", time.Since(started))
	if pod.Spec.NodeName == "" || pod.Status.PodIP == "" {
		t.Errorf("a running pod has a node and an address, got %q and %q", pod.Spec.NodeName, pod.Status.PodIP)
	}

	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the pod is gone, long before its grace period", func(ctx context.Context) error {
		return gone(pods.Get(ctx, pod.Name, metav1.GetOptions{}))
	})
}

func TestAnnotationsSteerTheFakeKubelet(t *testing.T) {
	namespace := shared.Namespace(t)
	pods := shared.Client().CoreV1().Pods(namespace)
	phase := func(name string, want corev1.PodPhase, ready bool) {
		t.Helper()
		cluster.Eventually(t, fmt.Sprintf("pod %s is %s", name, want), func(ctx context.Context) error {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Status.Phase != want || isReady(pod) != ready {
				return fmt.Errorf("phase %s, ready %t", pod.Status.Phase, isReady(pod))
			}
			return nil
		})
	}
	create := func(pod *corev1.Pod) { must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t) }

	create(builder.Pod(namespace, "unready").Annotation(cluster.ReadyAnnotation, "false").Obj())
	create(builder.Pod(namespace, "brief").Annotation(cluster.CompleteAfterAnnotation, "10ms").Obj())
	create(builder.Pod(namespace, "late").Annotation(cluster.StartDelayAnnotation, "1h").Obj())
	create(builder.Pod(namespace, "slow").Annotation(cluster.StopDelayAnnotation, "1h").Obj())
	phase("unready", corev1.PodRunning, false)
	phase("brief", corev1.PodSucceeded, false)
	phase("slow", corev1.PodRunning, true)
	phase("late", corev1.PodPending, false)

	patch := func(value string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, cluster.ReadyAnnotation, value)
		must(pods.Patch(t.Context(), "unready", types.MergePatchType, body, metav1.PatchOptions{}))(t)
	}
	patch("null")
	phase("unready", corev1.PodRunning, true)
	patch(`"false"`)
	phase("unready", corev1.PodRunning, false)

	// Deleted after the others of the same kubelet, "brief" being gone shows that
	// "slow" had its chance to go.
	for _, name := range []string{"slow", "brief"} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Eventually(t, "the pod without a delay is gone", func(ctx context.Context) error {
		return gone(pods.Get(ctx, "brief", metav1.GetOptions{}))
	})
	if pod := must(pods.Get(t.Context(), "slow", metav1.GetOptions{}))(t); pod.DeletionTimestamp == nil {
		t.Error("a pod that takes long to stop is there and terminating; it is not terminating")
	}
	zero := int64(0)
	if err := pods.Delete(t.Context(), "slow", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
}

func TestJobsComplete(t *testing.T) {
	namespace := shared.Namespace(t)
	jobs := shared.Client().BatchV1().Jobs(namespace)
	template := builder.Pod(namespace, "").Obj().Spec
	template.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template}},
	}
	must(jobs.Create(t.Context(), job, metav1.CreateOptions{}))(t)
	cluster.Eventually(t, "the job has succeeded once", func(ctx context.Context) error {
		job, err := jobs.Get(ctx, "once", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("status %+v", job.Status)
		}
		return err
	})
}

// TestJobsEndAsTheirPodsSay also shows what a container says at its end.
func TestJobsEndAsTheirPodsSay(t *testing.T) {
	type end struct {
		Phase      corev1.PodPhase
		ExitCode   int32
		Reason     string
		Message    string
		Condition  batchv1.JobConditionType
		Terminated bool
	}
	tests := map[string]struct {
		annotations map[string]string
		want        end
	}{
		"a pod that says something and succeeds": {
			annotations: map[string]string{cluster.SaysAnnotation: "line 1\nit \"is\" done"},
			want:        end{Phase: corev1.PodSucceeded, Reason: "Completed", Message: "line 1\nit \"is\" done", Condition: batchv1.JobComplete, Terminated: true},
		},
		"a pod that fails after a while": {
			annotations: map[string]string{cluster.ExitCodeAnnotation: "3", cluster.SaysAnnotation: "no: disk", cluster.CompleteAfterAnnotation: "10ms"},
			want:        end{Phase: corev1.PodFailed, ExitCode: 3, Reason: "Error", Message: "no: disk", Condition: batchv1.JobFailed, Terminated: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := shared.Namespace(t)
			jobs := shared.Client().BatchV1().Jobs(namespace)
			template := builder.Pod(namespace, "").Obj().Spec
			template.RestartPolicy = corev1.RestartPolicyNever
			must(jobs.Create(t.Context(), &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "once"},
				Spec: batchv1.JobSpec{BackoffLimit: new(int32), Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations}, Spec: template,
				}},
			}, metav1.CreateOptions{}))(t)
			cluster.Eventually(t, "the job and its pod to end as wanted", func(ctx context.Context) error {
				var got end
				pods, err := shared.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=once"})
				if err != nil || len(pods.Items) != 1 {
					return fmt.Errorf("%d pods, %w", len(pods.Items), err)
				}
				got.Phase = pods.Items[0].Status.Phase
				if s := pods.Items[0].Status.ContainerStatuses; len(s) == 1 && s[0].State.Terminated != nil {
					terminated := s[0].State.Terminated
					got.ExitCode, got.Reason, got.Message, got.Terminated = terminated.ExitCode, terminated.Reason, terminated.Message, true
				}
				job, err := jobs.Get(ctx, "once", metav1.GetOptions{})
				if err != nil {
					return err
				}
				for _, c := range job.Status.Conditions {
					if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
						got.Condition = c.Type
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
		})
	}
}

func TestCommandsRunHere(t *testing.T) {
	namespace := shared.Namespace(t)
	createReady(t, shared, builder.Pod(namespace, "db").Obj())
	result := must(shared.Kubectl(t.Context(), cluster.KubectlOptions{}, "exec", "-n", namespace, "db", "--", "sh", "-c", "echo out; echo err >&2"))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"out\n", "err\n"}, []string{result.Stdout, result.Stderr}); diff != "" {
		t.Errorf("output and errors (-want +got):\n%s", diff)
	}
}

func TestBudgetBlocksAndIsFreed(t *testing.T) {
	namespace := shared.Namespace(t)
	budgets := shared.Client().PolicyV1().PodDisruptionBudgets(namespace)
	pod := createReady(t, shared, builder.Pod(namespace, "db").Label("app", "db").Obj())
	must(budgets.Create(t.Context(), builder.Budget(namespace, "db").Selects("app", "db").MinAvailable("1").Obj(), metav1.CreateOptions{}))(t)
	waitBudget(t, namespace, "db", 0)

	err := evict(t.Context(), shared.Client(), pod)
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Fatalf("the budget refuses the eviction: want 429 with cause %s, got %v", policyv1.DisruptionBudgetCause, err)
	}

	must(budgets.Patch(t.Context(), "db", types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{}))(t)
	waitBudget(t, namespace, "db", 1)
	if err := evict(t.Context(), shared.Client(), pod); err != nil {
		t.Fatalf("the budget allows the eviction now: %v", err)
	}
	cluster.Eventually(t, "the evicted pod is gone", func(ctx context.Context) error {
		return gone(shared.Client().CoreV1().Pods(namespace).Get(ctx, "db", metav1.GetOptions{}))
	})
}

// waitBudget waits until the disruption controller has seen the budget as it is now
// and allows this many disruptions.
func waitBudget(t *testing.T, namespace, name string, allowed int32) {
	t.Helper()
	cluster.Eventually(t, fmt.Sprintf("budget %s allows %d", name, allowed), func(ctx context.Context) error {
		budget, err := shared.Client().PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (budget.Status.ObservedGeneration != budget.Generation || budget.Status.DisruptionsAllowed != allowed) {
			err = fmt.Errorf("generation %d, status %+v", budget.Generation, budget.Status)
		}
		return err
	})
}

func TestStatefulSetReplacesItsPod(t *testing.T) {
	namespace := shared.Namespace(t)
	set := builder.StatefulSet(namespace, "db").Obj()
	must(shared.Client().AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}))(t)
	first := waitReady(t, shared, namespace, "db-0", "")
	if err := evict(t.Context(), shared.Client(), first); err != nil {
		t.Fatal(err)
	}
	second := waitReady(t, shared, namespace, "db-0", string(first.UID))
	if first.UID == second.UID {
		t.Error("a replacement has the name but not the UID of the pod it replaces")
	}
}

func TestTheFakeKubeletEndsOnlyWhatWasDeleted(t *testing.T) {
	namespace := shared.Namespace(t)
	kubelet := clientFor(t, must(shared.ConfigFor("kwok", "system:masters"))(t)).CoreV1().Pods(namespace)
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	pod := createReady(t, shared, builder.Pod(namespace, "db-0").Annotation(cluster.StopDelayAnnotation, "1h").Obj())
	cluster.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		if err := kubelet.Delete(ctx, pod.Name, dryRun); !apierrors.IsInvalid(err) {
			return fmt.Errorf("want the pod to be kept, got %v", err)
		}
		return nil
	})
	if err := shared.Client().CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kubelet.Delete(t.Context(), pod.Name, dryRun); err != nil {
		t.Errorf("a pod that is terminating: %v", err)
	}
}

func TestUsersAreReal(t *testing.T) {
	namespace := shared.Namespace(t)
	tests := map[string]struct {
		config     *rest.Config
		wantName   string
		wantGroups []string
	}{
		"a user with groups": {
			config:     must(shared.ConfigFor("jane", "dev", "ops"))(t),
			wantName:   "jane",
			wantGroups: []string{"dev", "ops", "system:authenticated"},
		},
		"a service account": {
			config:     must(shared.ConfigForServiceAccount(t.Context(), namespace, "robot"))(t),
			wantName:   "system:serviceaccount:" + namespace + ":robot",
			wantGroups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := clientFor(t, tt.config)
			review := must(client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
			if diff := cmp.Diff(tt.wantName, review.Status.UserInfo.Username); diff != "" {
				t.Errorf("user name (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantGroups, review.Status.UserInfo.Groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			_, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("nobody granted anything: want 403, got %v", err)
			}
		})
	}
}

func TestNodesCanBeChangedAndAdded(t *testing.T) {
	names := must(shared.AddNodes(t.Context(), 2, func(node *corev1.Node) { node.Labels["zone"] = "b" }))(t)
	nodes := must(shared.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "zone=b"}))(t)
	var got []string
	for _, node := range nodes.Items {
		got = append(got, node.Name)
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("nodes with the label (-want +got):\n%s", diff)
	}
	namespace := shared.Namespace(t)
	pod := createReady(t, shared, builder.Pod(namespace, "web").NodeSelector("zone", "b").Obj())
	if pod.Spec.NodeName != names[0] && pod.Spec.NodeName != names[1] {
		t.Errorf("a pod for zone b runs on one of %v, got %q", names, pod.Spec.NodeName)
	}

	if err := shared.AddNode(t.Context(), "broken", func(node *corev1.Node) {
		node.Annotations = map[string]string{cluster.ReadyAnnotation: "false"}
	}); err != nil {
		t.Fatal(err)
	}
	node := must(shared.Client().CoreV1().Nodes().Get(t.Context(), "broken", metav1.GetOptions{}))(t)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			t.Error("the fake kubelet has set a node Ready that it was told to leave alone")
		}
	}
	for _, name := range append(names, "broken") {
		if err := shared.Client().CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// gone turns the answer of a Get into an error unless it is 404.
func gone[T any](_ T, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("still there")
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
