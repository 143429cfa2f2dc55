//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// recipe applies a file of examples/hooks, as it is, and returns its hook when it is in
// force.
func (h *hooked) recipe(t *testing.T, name string, covers int32) *v1alpha1.EvacuationHook {
	t.Helper()
	content := must(os.ReadFile("../../examples/hooks/" + name + ".yaml"))(t)
	options := cluster.KubectlOptions{Stdin: bytes.NewReader(content)}
	result, err := kube.Kubectl(t.Context(), options, "apply", "--namespace", h.namespace, "-f", "-")
	if err := errors.Join(err, result.Err()); err != nil {
		t.Fatal(err)
	}
	hook := &v1alpha1.EvacuationHook{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	waitHook(t, hook, "accepted", func(s v1alpha1.EvacuationHookStatus) bool {
		return s.ObservedGeneration > 0 && s.MatchingPods != nil && *s.MatchingPods == covers
	})
	for _, c := range hook.Status.Conditions {
		if c.Type == v1alpha1.ConditionAccepted && c.Status != metav1.ConditionTrue {
			t.Fatalf("the recipe is not accepted: %s", c.Message)
		}
	}
	return hook
}

// labeled creates a pod with labels, pairs of a key and a value, on the node to be drained.
func (h *hooked) labeled(t *testing.T, name, container string, labels ...string) *corev1.Pod {
	t.Helper()
	w := builder.Pod(h.namespace, name).Node(h.node)
	for i := 0; i+1 < len(labels); i += 2 {
		w.Label(labels[i], labels[i+1])
	}
	pod := w.Obj()
	pod.Spec.Containers[0].Name = container
	return createPod(t, pod)
}

// jobOf is the Job of the first attempt for a pod.
func (h *hooked) jobOf(t *testing.T, hook *v1alpha1.EvacuationHook, er *v1alpha1.EvictionRequest) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{}
	key := client.ObjectKey{Namespace: h.namespace, Name: v1alpha1.HookJobName(hook.Name, er.UID, 1)}
	if err := admin.Get(t.Context(), key, job); err != nil {
		t.Fatal(err)
	}
	return job
}

func TestRecipeDump(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	// The volume that the recipe's claim is bound to.
	class, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/dumps"}},
		ClaimRef:               &corev1.ObjectReference{Namespace: h.namespace, Name: "dumps"},
	}}
	create(t, volume)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), volume)); err != nil {
			t.Error(err)
		}
	})
	create(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "dumps"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &class, VolumeName: volume.Name,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}})
	primary := h.labeled(t, "ledger-0", "main", "app", "ledger", "role", "primary")
	replica := h.labeled(t, "ledger-1", "main", "app", "ledger", "role", "replica")
	hook := h.recipe(t, "dump", 1)

	drain := startDrain(t, "alice", h.node)
	gone(t, replica)
	er := evicted(t, drain, primary)
	noRequest(t, replica)
	h.seen.endedBefore(t, attemptsOf(hook, er, 1)[0], primary)
	env := map[string]string{}
	for _, v := range h.jobOf(t, hook, er).Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	if env["POD_NAME"] != "ledger-0" || env["POD_IP"] == "" {
		t.Errorf("environment %v", env)
	}
}

func TestRecipeDrainQueue(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	// The pod's address is one of this machine, where the worker listens.
	address := must(freeLoopback(t.Context(), "8080"))(t)
	var mu sync.Mutex
	var got []string
	busy := true
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path+" "+fmt.Sprint(len(body) > 0))
		if busy && r.Method != http.MethodDelete {
			w.Header().Set("Location", "/drain/progress")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusAccepted)
		}
	})}
	go func() { _ = server.Serve(address) }()
	t.Cleanup(func() { _ = server.Close() })
	host, _, _ := strings.Cut(address.Addr().String(), ":")

	worker := h.labeled(t, "worker-0", "main", "app", "worker")
	eventually(t, "the pod to have the worker's address", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(worker), worker); err != nil {
			return err
		}
		worker.Status.PodIP, worker.Status.PodIPs = host, []corev1.PodIP{{IP: host}}
		return admin.Status().Update(ctx, worker)
	})
	hook := h.recipe(t, "drain-queue", 1)

	// Canceled in the middle, it takes new work again.
	drain := startDrain(t, "alice", h.node)
	asked := func(what, line string) {
		t.Helper()
		eventually(t, what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range got {
				if l == line {
					return nil
				}
			}
			return fmt.Errorf("it was asked %v", got)
		})
	}
	asked("the worker to be polled", "GET /drain/progress false")
	callOff(t, "alice", drain, h.node)
	asked("the worker to be told to go on", "DELETE /drain false")
	lives(t, worker)
	waitEvent(t, worker, "HookUndone")

	// Then it is drained for good.
	mu.Lock()
	busy, got = false, nil
	mu.Unlock()
	evicted(t, startDrain(t, "alice", h.node), worker)
	mu.Lock()
	defer mu.Unlock()
	// A drain that follows so soon may be taken for the one that was canceled.
	if len(got) == 0 || got[len(got)-1] != "POST /drain true" {
		t.Errorf("requests of hook %s: %v, want that the last one is the drain's", hook.Name, got)
	}
}

// freeLoopback listens on an address of this machine that nobody uses.
func freeLoopback(ctx context.Context, port string) (net.Listener, error) {
	var errs []error
	for i := 2; i < 250; i++ {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.77.%d:%s", i, port))
		if err == nil {
			return listener, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func TestRecipeFlush(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	cache := h.labeled(t, "cache-0", "cache", "app", "cache")
	hook := h.recipe(t, "flush", 1)
	er := evicted(t, startDrain(t, "alice", h.node), cache)
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, "flushed")
}

func TestRecipeReplicasInSync(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	set := builder.StatefulSet(h.namespace, "quorum").Replicas(2).Obj()
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "quorum"}}
	set.Spec.Template.Labels = map[string]string{"app": "quorum"}
	set.Spec.Template.Spec.NodeSelector = map[string]string{testLabel: h.namespace}
	create(t, set)
	first, second := readyPod(t, h.namespace, "quorum-0"), readyPod(t, h.namespace, "quorum-1")
	// One of them is not in sync.
	ready(t, second, "false")
	eventually(t, "one replica not to be ready", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		if set.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d are", set.Status.ReadyReplicas)
		}
		return nil
	})
	hook := h.recipe(t, "replicas-in-sync", 2)
	if err := admin.Create(t.Context(), builder.EvictionRequest(h.namespace, first.Name, first.UID).Requesters("native.example.com").Obj()); err != nil {
		t.Fatal(err)
	}
	waitHookSays(t, first, hook, "the condition on StatefulSet quorum is not true yet")
	lives(t, first)
	ready(t, second, "true")
	waitRequest(t, first, "Evicted", isTrue(v1alpha1.ConditionEvicted))
}

// ready lets the fake kubelet turn a pod ready or not.
func ready(t *testing.T, pod *corev1.Pod, value string) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be annotated", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, cluster.ReadyAnnotation, value)
		return admin.Update(ctx, pod)
	})
}

// The Job runs on the node that is drained, and its account reaches the kubelet, which has
// the last word, only with the role of the recipe.
func TestRecipeCheckpoint(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "training-0", "worker", "app", "training")
	hook := h.recipe(t, "checkpoint", 1)
	er := evicted(t, startDrain(t, "alice", h.node), pod)
	job := h.jobOf(t, hook, er)
	var pods corev1.PodList
	if err := admin.List(t.Context(), &pods, client.InNamespace(h.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != h.node {
		t.Errorf("the Job's pods: %+v, want one on %s", pods.Items, h.node)
	}
	env := map[string]string{}
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	if diff := cmp.Diff("worker "+h.namespace+" training-0 "+h.node, env["CONTAINER"]+" "+env["POD_NAMESPACE"]+" "+env["POD_NAME"]+" "+env["NODE_NAME"]); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}

	asked := func() string {
		kubeconfig := must(kube.KubeconfigFileForServiceAccount(t.Context(), h.namespace, "checkpointer"))(t)
		path := "/api/v1/nodes/" + h.node + "/proxy/checkpoint/" + h.namespace + "/training-0/worker"
		options := cluster.KubectlOptions{Kubeconfig: kubeconfig, Stdin: strings.NewReader("{}")}
		result := must(kube.Kubectl(t.Context(), options, "create", "--raw", path, "-f", "-"))(t)
		return result.Stderr
	}
	saysAll(t, "without the role", asked(), "nodes/proxy")
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "checkpointer-" + h.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "checkpointer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: h.namespace, Name: "checkpointer"}},
	})
	eventually(t, "the role to count", func(context.Context) error {
		// The fake kubelet has no runtime that makes checkpoints.
		if got := asked(); strings.Contains(strings.ToLower(got), "forbidden") {
			return errors.New(got)
		}
		return nil
	})
}
