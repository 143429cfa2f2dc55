//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// Each file is accepted as it is, and so is everything in it.
func TestRecipesAreAccepted(t *testing.T) {
	shareManager(t)
	files := must(filepath.Glob("../../examples/recipes/*.yaml"))(t)
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			useRecipe(t, kube.Namespace(t), name, nil)
		})
	}
}

// goesAfter waits until a pod is evicted, after the Job of a hook, and returns that Job.
func (h *hooked) goesAfter(t *testing.T, pod *corev1.Pod, hook *v1alpha1.EvacuationHook) *batchv1.Job {
	t.Helper()
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	h.seen.endedBefore(t, attemptsOf(hook, er, 1)[0], pod)
	return h.jobOf(t, hook, er)
}

func TestRecipeCloudNativePG(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	primary := h.labeled(t, "ledger-1", "postgres", "cnpg.io/cluster", "ledger", "cnpg.io/podRole", "instance", "cnpg.io/instanceRole", "primary")
	single := h.labeled(t, "wiki-1", "postgres", "cnpg.io/cluster", "wiki", "cnpg.io/podRole", "instance", "cnpg.io/instanceRole", "primary")
	hooks := useRecipe(t, h.namespace, "cloudnative-pg", map[string]int32{"switchover": 1, "wiki-at-night": 1})
	// What the real kubectl asks for, which the one that is played below does not. It reads what it patches.
	const group, plural = "postgresql.cnpg.io", "clusters"
	mayDo(t, h.namespace, "cnpg-switchover",
		authorizationv1.ResourceAttributes{Verb: "get", Group: group, Resource: plural},
		authorizationv1.ResourceAttributes{Verb: "get", Group: group, Resource: plural, Subresource: "status"},
		authorizationv1.ResourceAttributes{Verb: "patch", Group: group, Resource: plural, Subresource: "status"},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})

	drain := startDrain(t, "alice", h.node)
	job := h.goesAfter(t, primary, hooks["switchover"])
	inWindow(t, single, "wiki-at-night")
	gone(t, single)
	finishWell(t, drain)

	// The version of the Cluster, its primary, and the one it is to have.
	const cluster = "is() { echo \"$1 $2 ${3:-$2}\"; }\n"
	t.Run("the operator switches over", func(t *testing.T) {
		said, calls := play(t, job, map[string]string{"kubectl": cluster + `case $(wc -l < calls) in
  1) is 7 ledger-1 ;;
  2) is 8 ledger-1 pending ;;
  *) is 9 ledger-2 ;;
esac`})
		if said != "ledger-2 is the primary" || len(calls) != 3 {
			t.Errorf("it says %q after %q", said, calls)
		}
	})
	t.Run("nobody does", func(t *testing.T) {
		said, calls := play(t, job, map[string]string{"kubectl": cluster + `case "$1 $2" in
  "get pods") printf 'ledger-3   0/1   Running   0   1h\nledger-2   1/1   Running   0   1h\n' ;;
  patch*) touch promoted ;;
  *) if [ -e promoted ]; then is 8 ledger-2; else is 7 ledger-1; fi ;;
esac`})
		if said != "ledger-2 is the primary" || len(calls) != 13+2+1 {
			t.Fatalf("it says %q after %d calls: %q", said, len(calls), calls)
		}
		saysAll(t, "the calls", strings.Join(calls[13:], "\n"), "get pods", "-l cnpg.io/cluster=ledger,cnpg.io/instanceRole=replica",
			"patch clusters.postgresql.cnpg.io ledger --subresource=status", "{resourceVersion: '7'}", "{targetPrimary: ledger-2, ")
	})
}

func TestRecipeElasticsearch(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "es-data-0", "elasticsearch", "app", "elasticsearch", "role", "data")
	var mu sync.Mutex
	var got []string
	// As the server does: a body without its type is refused.
	listenFor(t, pod, "9200", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body))
		if r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
	}))
	hooks := useRecipe(t, h.namespace, "elasticsearch", map[string]int32{"elasticsearch-data": 1, "exclude": 1, "shards-away": 1})

	drain := startDrain(t, "alice", h.node)
	job := h.goesAfter(t, pod, hooks["shards-away"])
	finishWell(t, drain)
	mu.Lock()
	defer mu.Unlock()
	want := []string{`PUT /_cluster/settings {"persistent":{"cluster.routing.allocation.exclude._ip":"` + pod.Status.PodIP + `"}}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	said, calls := play(t, job, map[string]string{"curl": `case $(wc -l < calls) in
  1) echo "$POD_IP  "; echo "$POD_IP"; echo 10.0.0.2 ;;
  2) exit 7 ;;
  *) echo 10.0.0.2; echo 10.0.0.3 ;;
esac`})
	if said != "0 shards are left" || len(calls) != 3 {
		t.Errorf("it says %q after %q", said, calls)
	}
}

// Two brokers of one node: the second one waits until the first one has left.
func TestRecipeKafka(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pods := []*corev1.Pod{h.labeled(t, "kafka-0", "kafka", "app", "kafka"), h.labeled(t, "kafka-1", "kafka", "app", "kafka")}
	hooks := useRecipe(t, h.namespace, "kafka", map[string]int32{"kafka": 2, "in-sync": 2})

	drain := startDrain(t, "alice", h.node)
	job := h.goesAfter(t, pods[0], hooks["in-sync"])
	second := h.goesAfter(t, pods[1], hooks["in-sync"])
	finishWell(t, drain)
	// Which one is the first depends on the order of kubectl's calls.
	if created := h.seen.createdInOrder(); created[0] == job.Name {
		h.seen.beganAfter(t, second.Name, pods[0])
	} else {
		h.seen.beganAfter(t, job.Name, pods[1])
	}
	said, calls := play(t, job, map[string]string{"kafka-topics.sh": `case $(wc -l < calls) in
  1) printf '\tTopic: orders\tPartition: 3\tLeader: 1\tReplicas: 0,1,2\tIsr: 1,2\n' ;;
  2) exit 1 ;;
esac`})
	if said != "all partitions are in sync" || len(calls) != 3 {
		t.Errorf("it says %q after %q", said, calls)
	}
}

// The eviction is canceled after the hook, and so the node serves again. Then it is
// drained for good.
func TestRecipeRabbitMQ(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	t.Cleanup(func() { _ = os.Remove(os.Getenv(played)) })
	slow := nameIn(h.namespace, "slow")
	startInterceptor(t, h.namespace, slow, time.Hour)
	register(t, builder.EvictionInterceptor(slow).InNamespace(h.namespace).Priority(100).ActedBy(h.namespace, slow).Pods("app.kubernetes.io/component", "rabbitmq"))
	pod := h.labeled(t, "rabbitmq-0", "rabbitmq", "app.kubernetes.io/component", "rabbitmq")
	hooks := useRecipe(t, h.namespace, "rabbitmq", map[string]int32{"rabbitmq": 1, "maintenance-mode": 1})

	drain := startDrain(t, "alice", h.node)
	er := waitRequest(t, pod, "at the next interceptor", activeIs(slow))
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hooks["maintenance-mode"])).Message, "it is done: ", "into maintenance mode")
	callOff(t, "alice", drain, h.node)
	waitEvent(t, pod, "HookUndone")
	lives(t, pod)
	asked := strings.Split(strings.TrimSpace(string(must(os.ReadFile(os.Getenv(played)))(t))), "\n")
	if diff := cmp.Diff([]string{"await_online_quorum_plus_one -t 600", "drain", "revive"}, asked); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	drain = startDrain(t, "bob", h.node)
	waitRequest(t, pod, "at the next interceptor again", activeIs(slow))
	plugin(t, "skip", pod.Name, slow, "-n", h.namespace, "--reason=it is only there to wait")
	evicted(t, drain, pod)
}

func TestRecipeRedisSentinel(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "redis-node-0", "redis", "app.kubernetes.io/name", "redis")
	hooks := useRecipe(t, h.namespace, "redis-sentinel", map[string]int32{"redis": 1, "failover": 1})
	drain := startDrain(t, "alice", h.node)
	job := h.goesAfter(t, pod, hooks["failover"])
	finishWell(t, drain)

	host := "-h " + pod.Status.PodIP
	said, calls := play(t, job, map[string]string{"redis-cli": `case "$*" in
  *" sentinel failover mymaster")
    if [ -e asked ]; then touch failed-over; echo OK; else touch asked; echo '(error) NOGOODSLAVE No suitable replica to promote'; fi ;;
  *" info replication") echo master_link_status:up ;;
  *" role") if [ -e failed-over ]; then echo slave; echo 10.0.0.2; else echo master; echo 0; fi ;;
esac`})
	want := []string{
		host + " role", host + " client pause 60000 write",
		"-h redis -p 26379 sentinel failover mymaster", "-h redis -p 26379 sentinel failover mymaster",
		host + " role", host + " info replication",
	}
	if diff := cmp.Diff(want, calls); diff != "" || said != "redis-node-0 is a replica" {
		t.Errorf("it says %q after (-want +got):\n%s", said, diff)
	}
	said, calls = play(t, job, map[string]string{"redis-cli": `case "$*" in
  *" role") echo slave ;;
  *) echo master_link_status:up ;;
esac`})
	if len(calls) != 2 || said != "redis-node-0 is a replica" {
		t.Errorf("for a replica it says %q after %q", said, calls)
	}
}

func TestRecipeRookCeph(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "rook-ceph-osd-3-7f9c", "osd", "app", "rook-ceph-osd", "ceph-osd-id", "3")
	hooks := useRecipe(t, h.namespace, "rook-ceph", map[string]int32{"osds": 1, "ok-to-stop": 1})
	drain := startDrain(t, "alice", h.node)
	job := h.goesAfter(t, pod, hooks["ok-to-stop"])
	finishWell(t, drain)
	said, calls := play(t, job, map[string]string{"ceph": `if [ "$(wc -l < calls)" -lt 3 ]; then
  echo 'Error EBUSY: unsafe to stop osd(s) at this time (1 PGs are or would become offline)' >&2
  exit 16
fi`})
	if diff := cmp.Diff(slices.Repeat([]string{"osd ok-to-stop osd.3"}, 3), calls); diff != "" || said != "osd.3 may stop" {
		t.Errorf("it says %q after (-want +got):\n%s", said, diff)
	}
}

func TestRecipeBatch(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "train-workers-0-1-x7x2p", "worker", "jobset.sigs.k8s.io/jobset-name", "train")
	var mu sync.Mutex
	var got []string
	listenFor(t, pod, "8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path)
		if len(got) < 3 {
			w.Header().Set("Location", "/checkpoint/7")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		_, _ = io.WriteString(w, "step 1200 is saved")
	}))
	hooks := useRecipe(t, h.namespace, "batch", map[string]int32{"checkpoint": 1})
	er := evicted(t, startDrain(t, "alice", h.node), pod)
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hooks["checkpoint"])).Message, "the server answered 200 OK: step 1200 is saved")
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"POST /checkpoint", "GET /checkpoint/7", "GET /checkpoint/7"}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRecipeGPUTraining(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.labeled(t, "training-0", "trainer", "app", "training")
	hooks := useRecipe(t, h.namespace, "gpu-training", map[string]int32{"trainings": 1, "checkpoint-now": 1})
	drain := startDrain(t, "alice", h.node)
	inWindow(t, pod, "trainings")
	er := evicted(t, drain, pod)
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hooks["checkpoint-now"])).Message, "step 1200 is saved")
}

// Pods that wait until another object of their operator says that they may go.
func TestRecipesThatWait(t *testing.T) {
	shareManager(t)
	cases := map[string]struct {
		recipe, hook, plural string
		kind                 schema.GroupVersionKind
		labels               []string
		busy, over           map[string]any
	}{
		"Longhorn: until no volume is attached on the node": {
			recipe: "longhorn", hook: "volumes-detached", plural: "instancemanagers",
			kind:   schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "InstanceManager"},
			labels: []string{"longhorn.io/component", "instance-manager"},
			busy: map[string]any{
				"instanceEngines":  map[string]any{"pvc-1-e-0": map[string]any{}},
				"instanceReplicas": map[string]any{"pvc-1-r-0": map[string]any{}},
			},
			over: map[string]any{"instanceEngines": nil, "instanceReplicas": map[string]any{"pvc-1-r-0": map[string]any{}}},
		},
		"Agones: until the game is over": {
			recipe: "agones", hook: "game-over", plural: "gameservers",
			kind:   schema.GroupVersionKind{Group: "agones.dev", Version: "v1", Kind: "GameServer"},
			labels: []string{"agones.dev/role", "gameserver"},
			busy:   map[string]any{"state": "Allocated"}, over: map[string]any{"state": "Shutdown"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition := vmcrds.Definition(tc.kind, tc.plural, true)
			if err := vmcrds.Install(t.Context(), admin, []*apiextensionsv1.CustomResourceDefinition{definition}); err != nil {
				t.Fatal(err)
			}
			h := newHooked(t)
			owner := vmcrds.New(tc.kind, h.namespace, "one", nil)
			create(t, owner)
			setStatus(t, owner, tc.busy)
			w := builder.Pod(h.namespace, "one").Node(h.node).Label(tc.labels[0], tc.labels[1])
			pod := createPod(t, w.Owner(*metav1.NewControllerRef(owner, tc.kind)).Obj())
			hook := useRecipe(t, h.namespace, tc.recipe, map[string]int32{tc.hook: 1})[tc.hook]

			drain := startDrain(t, "alice", h.node)
			waitHookSays(t, pod, hook, fmt.Sprintf("the condition on %s one is not true yet", tc.kind.Kind))
			lives(t, pod)
			drainGoesOn(t, drain)
			setStatus(t, owner, tc.over)
			er := evicted(t, drain, pod)
			saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, "it is done: the condition is true")
		})
	}
}

// A sidecar that never ends keeps the Job of a hook from completing. The Jobs of the recipe
// have none, or one that ends with them.
func TestRecipeIstio(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod, other := h.labeled(t, "shop-0", "main", "app", "shop"), h.pod(t, "ledger-0")
	injectSidecars(t, h.namespace)
	hooks := useRecipe(t, h.namespace, "istio", map[string]int32{"announce": 1, "settle-orders": 1})
	plain := h.hook(t, "plain", 1, v1alpha1.EvacuationHookSpec{
		Job: h.job(), Deadline: &metav1.Duration{Duration: 10 * time.Second}, Retries: new(int32),
	})

	drain := startDrain(t, "alice", h.node)
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	containers := map[string][]string{}
	for name, hook := range hooks {
		attempt := attemptsOf(hook, er, 1)[0]
		h.seen.endedBefore(t, attempt, pod)
		// The pod itself may be gone: drains of other tests take those that have ended.
		eventually(t, "the pod of Job "+attempt+" to be seen", func(context.Context) error {
			containers[name] = h.seen.containersOf(attempt)
			if containers[name] == nil {
				return errors.New("it was not seen")
			}
			return nil
		})
	}
	want := map[string][]string{"announce": {"announce"}, "settle-orders": {sidecar, "settle-orders"}}
	if diff := cmp.Diff(want, containers); diff != "" {
		t.Errorf("containers of the Jobs' pods (-want +got):\n%s", diff)
	}

	waitHookSays(t, other, plain, "has failed and keeps the pod", "it took longer than 10s")
	lives(t, other)
	drainGoesOn(t, drain)
}

// containersOf are those of the last pod of a Job, nil if none was seen.
func (w *hookWatch) containersOf(job string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.containers[job]
}

// createdInOrder are the names of all Jobs there were, the first one first.
func (w *hookWatch) createdInOrder() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.jobs)
}
