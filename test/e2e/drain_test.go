//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// kubectlTTL is how long a silent kubectl still counts.
const kubectlTTL = 2 * time.Minute

// leaseOf reads the lease of a drainer and a node.
func leaseOf(ctx context.Context, user, node string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := admin.Get(ctx, client.ObjectKey{Namespace: inst.Namespace, Name: translate.LeaseName(translate.RequesterName(user), node)}, lease)
	return lease, err
}

// noLease fails the test if a drainer has a lease for a node.
func noLease(t *testing.T, user, node string) {
	t.Helper()
	if _, err := leaseOf(t.Context(), user, node); !apierrors.IsNotFound(err) {
		t.Errorf("lease of %s for %s: want none, got error %v", user, node, err)
	}
}

// waitHeard waits until the lease says that its holder was heard of after a time.
func waitHeard(t *testing.T, user, node string, after time.Time) {
	t.Helper()
	eventually(t, "the lease of "+user+" to be renewed", func(ctx context.Context) error {
		lease, err := leaseOf(ctx, user, node)
		switch {
		case err != nil:
			return err
		case !lease.Spec.RenewTime.After(after):
			return fmt.Errorf("renewed at %s, want after %s", lease.Spec.RenewTime, after)
		}
		return nil
	})
}

// waitingFor is how kubectl repeats our answer about a pod.
func waitingFor(pod *corev1.Pod, interceptor string, position, total int) string {
	return fmt.Sprintf(`error when evicting pods/%q -n %q (will retry after 5s): admission webhook "eviction-requests.drawbridge.dev" denied the request: `+
		`Eviction triggered evacuation: waiting for interceptor %q (%d of %d)`, pod.Name, pod.Namespace, interceptor, position, total)
}

// saysAll fails the test for each text that is missing.
func saysAll(t *testing.T, what, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%s lacks %q:\n%s", what, text, output)
		}
	}
}

// indexOf is the place of the first request like that.
func indexOf(t *testing.T, requests cluster.Requests, what string, like func(cluster.Request) bool) int {
	t.Helper()
	i := slices.IndexFunc(requests, like)
	if i < 0 {
		t.Fatalf("the log has no %s:\n%s", what, requests)
	}
	return i
}

func TestADrainWaitsForTwoInterceptors(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const first, second = "checkpoint.example.com", "handover.example.com"
	const work = 8 * time.Second // Long enough to stop one that has just begun.
	working := []*cluster.Program{startInterceptor(t, namespace, first, work), startInterceptor(t, namespace, second, work)}
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(first, second).Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj())

	mark := kube.RequestLog().Mark()
	const grace = 7
	drain := startDrain(t, "alice", node, fmt.Sprintf("--grace-period=%d", grace))
	for i, name := range []string{first, second} { // Each stands still until kubectl, which asks every five seconds or later, has met it.
		waitLine(t, working[i], namespace+"/db-0: started")
		if err := working[i].Pause(); err != nil {
			t.Fatal(err)
		}
		waitLine(t, drain, waitingFor(pod, name, i+1, 3))
		gone(t, plain)
		lives(t, pod)
		if err := working[i].Resume(); err != nil {
			t.Fatal(err)
		}
	}
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "pod/web-0 evicted", "node/"+node+" drained")
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if diff := cmp.Diff([]string{first, second, v1alpha1.ImperativeEvictionInterceptor}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	for _, report := range er.Status.Interceptors[:2] {
		if report.StartTime == nil || report.CompletionTime == nil {
			t.Errorf("%s did not begin and complete: %+v", report.Name, report)
		}
	}

	log := since(t, mark).Where(func(r cluster.Request) bool { return r.Namespace == namespace })
	reports := func(name string) (begun, completed int) {
		t.Helper()
		like := func(r cluster.Request) bool {
			return r.User == serviceAccount(namespace, name) && r.Subresource == "status" && r.Code == http.StatusOK
		}
		begun = indexOf(t, log, "report of "+name, like)
		rest := indexOf(t, log[begun+1:], "second report of "+name, like)
		return begun, begun + 1 + rest
	}
	accepted := indexOf(t, log, "accepted eviction of db-0", func(r cluster.Request) bool {
		return r.Subresource == "eviction" && r.Name == pod.Name && r.Code == http.StatusCreated
	})
	var sent policyv1.Eviction // By the evictor or by kubectl, whoever came first.
	if err := json.Unmarshal(log[accepted].Body, &sent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(int64(grace), ptr.Deref(sent.DeleteOptions.GracePeriodSeconds, -1)); diff != "" {
		t.Errorf("grace period asked for (-want +got):\n%s", diff)
	}
	_, firstDone := reports(first)
	secondBegun, secondDone := reports(second)
	if firstDone > secondBegun || secondDone > accepted {
		t.Errorf("out of order: first done %d, second begun %d, second done %d, eviction accepted %d:\n%s",
			firstDone, secondBegun, secondDone, accepted, log)
	}
	denied := log[:accepted].Where(func(r cluster.Request) bool { return r.Subresource == "eviction" && r.Name == pod.Name })
	for _, r := range denied {
		if r.Code != http.StatusTooManyRequests {
			t.Errorf("an eviction before its time: want 429, got %v", r)
		}
	}
}

// noWrites fails the test for each request that changes things.
func noWrites(t *testing.T, requests cluster.Requests) {
	t.Helper()
	for _, r := range requests {
		if r.Writes() {
			t.Errorf("want no such request: %v", r)
		}
	}
}

// background are the requests that a manager makes however little there is to do:
// it keeps its leadership and its watches, and compares their resource versions with the API
// server's, every 5 seconds by a list of one object.
func background(r cluster.Request) bool {
	if r.Resource == "leases" && r.Namespace == inst.Namespace && r.Name == "drawbridge-leader" && (r.Verb == "get" || r.Verb == "update") {
		return true
	}
	if r.Verb == "list" && (r.Resource == "evictionrequests" || r.Resource == "pods") && r.Namespace == "" && strings.Contains(r.URI, "?limit=1") {
		return true
	}
	// It has just begun: it asks whether its webhook is called, and what it may do with the kinds of platforms.
	if r.Name == "drawbridge-webhook-probe" || r.Resource == "selfsubjectaccessreviews" {
		return true
	}
	watched := []string{"evictionrequests", "pods", "nodes", "poddisruptionbudgets", "leases", "secrets", "validatingwebhookconfigurations",
		"deployments", "replicasets"}
	return r.Verb == "watch" && slices.Contains(watched, r.Resource)
}

// verdicts is how often the webhook gave this answer.
func verdicts(t *testing.T, m *manager.Manager, verdict, reason string) int {
	t.Helper()
	total := 0.0
	for _, family := range must(m.Metrics.Gather())(t) {
		if family.GetName() != "drawbridge_eviction_verdicts_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			has := func(name, value string) bool {
				return slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name && l.GetValue() == value })
			}
			if has("verdict", verdict) && has("reason", reason) {
				total += series.GetCounter().GetValue()
			}
		}
	}
	return int(total)
}

func TestPlainPodsCostNoRequest(t *testing.T) {
	m := startManager(t, func(o *app.Options) { o.LeaderElect = true })
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 1)
	create(t, builder.Deployment(namespace, "web").Replicas(12).Pods(onNodesOf(namespace)).Obj())
	pods := readyPods(t, namespace, 12, nodes...)
	nodes = append(nodes, addNodes(t, namespace, 1)...)
	waitLeader(t)

	mark := kube.RequestLog().Mark()
	finishWell(t, startDrain(t, "alice", nodes[0]))
	readyPods(t, namespace, 12, nodes[1])

	log := since(t, mark)
	evictions := log.Where(func(r cluster.Request) bool { return r.Subresource == "eviction" && r.Namespace == namespace })
	if len(evictions) != len(pods) {
		t.Errorf("want one call per pod, got %d for %d:\n%s", len(evictions), len(pods), evictions)
	}
	for _, r := range evictions {
		if r.User != "alice" || r.Code != http.StatusCreated {
			t.Errorf("want it to be alice's and accepted: %v", r)
		}
		for key := range r.Annotations {
			if strings.Contains(key, v1alpha1.GroupName) {
				t.Errorf("want no trace of us in the audit log, got %s of %v", key, r)
			}
		}
	}
	if got := verdicts(t, m, "allowed", "no-interceptors"); got != len(pods) {
		t.Errorf("the webhook was asked about %d pods, want %d", got, len(pods))
	}
	ours := log.By(drawbridge()).Where(func(r cluster.Request) bool {
		// What earlier tests left behind is in namespaces of their own; the guard reads
		// the owner of its budgets when it makes one there.
		if r.Verb == "get" && r.Resource == "clusterroles" {
			return false
		}
		return r.Namespace == "" || r.Namespace == namespace || r.Namespace == inst.Namespace
	})
	for _, r := range ours {
		if !background(r) {
			t.Errorf("want no request by Drawbridge, got %v", r)
		}
	}
	for _, pod := range pods {
		noRequest(t, &pod)
	}
	noLease(t, "alice", nodes[0])
}

// waitLeader waits until the manager leads and its controllers work: a request for
// a pod that does not exist has its answer.
func waitLeader(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	er := builder.EvictionRequest(namespace, "nobody", "00000000-0000-4000-8000-000000000000").Requesters("probe.example.com").Obj()
	create(t, er)
	eventually(t, "the controllers to work", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(er), er); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled) {
			return fmt.Errorf("status %+v", er.Status)
		}
		return nil
	})
}

func TestUncordonCancels(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "migrate.example.com"
	interceptor := startInterceptor(t, namespace, name, time.Hour)
	pod := createPod(t, builder.Pod(namespace, "vm-0").Node(node).Interceptors(name).Obj())

	drain := startDrain(t, "bob", node)
	waitLine(t, interceptor, namespace+"/vm-0: started")
	waitLine(t, drain, waitingFor(pod, name, 1, 2))
	if err := drain.Interrupt(); err != nil {
		t.Fatal(err)
	}
	if finish(t, drain).ExitCode == 0 {
		t.Error("an interrupted drain is no success")
	}
	kubectl(t, "bob", "uncordon", node)

	waitLine(t, interceptor, "vm-0: stopping, because the request is Canceled (NoRequesters)")
	er := waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	if diff := cmp.Diff([]string(nil), er.Status.ActiveInterceptors); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{name}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	event := waitEvent(t, er, "RequesterWithdrawn")
	saysAll(t, "the event", event.Note, "bob.users.drawbridge.dev (kubectl (bob))", "node "+node+" is not drained any more", translate.MarkerUnschedulable)
	noLease(t, "bob", node)
	lives(t, pod)
}

// A kubectl that goes on asking is never forgotten, one that was killed is, and
// one that comes back starts afresh.
func TestAKilledDrainExpires(t *testing.T) {
	m := startManager(t, func(o *app.Options) { o.Policy.StartupGrace = 0 })
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "slow.example.com"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(name).Obj())

	drain := startDrain(t, "carol", node)
	first := waitRequest(t, pod, "in progress", activeIs(name))
	for range 2 { // Together longer than a silent kubectl counts.
		m.Clock.Advance(kubectlTTL * 3 / 4)
		waitHeard(t, "carol", node, m.Clock.Now().Add(-kubectlTTL/2))
	}
	if now := waitRequest(t, pod, "in progress", activeIs(name)); now.UID != first.UID {
		t.Error("the request was canceled and made anew while kubectl went on asking")
	}

	killed(t, drain)
	m.Clock.Advance(translate.Granted(kubectlTTL))
	er := waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	if diff := cmp.Diff(v1alpha1.ReasonNoRequesters, meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled).Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), er.Status.ActiveInterceptors); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	const recorded = "no call for an eviction was recorded for "
	note := waitEvent(t, er, "RequesterExpired").Note
	saysAll(t, "the event", note, "carol.users.drawbridge.dev (kubectl (carol))", recorded)
	_, silence, _ := strings.Cut(strings.TrimSuffix(note, "."), recorded)
	if got := must(time.ParseDuration(silence))(t); got < translate.Granted(kubectlTTL) { // It is longer by what the test took.
		t.Errorf("expired after a silence of %s, want at least %s", got, translate.Granted(kubectlTTL))
	}
	noLease(t, "carol", node)
	lives(t, pod)

	startDrain(t, "carol", node)
	second := waitRequest(t, pod, "in progress again", activeIs(name))
	if second.UID == first.UID {
		t.Error("the canceled request was revived, want a new one")
	}
	if diff := cmp.Diff([]string{"carol.users.drawbridge.dev"}, requesters(second)); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	lives(t, pod)
}

func TestADryRunChangesNothing(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	var pods []*corev1.Pod
	for _, name := range []string{"db-0", "db-1"} {
		pods = append(pods, createPod(t, builder.Pod(namespace, name).Node(node).Interceptors("failover.example.com").Obj()))
	}
	pods = append(pods, createPod(t, builder.Pod(namespace, "web-0").Node(node).Obj()))

	mark := kube.RequestLog().Mark()
	result := finishWell(t, startDrain(t, "dave", node, "--dry-run=server"))

	if got := strings.Count(result.Stderr, translate.DryRunWarning); got != 2 { // One for each that is intercepted.
		t.Errorf("the warning was shown %d times, want twice:\n%s", got, result.Stderr)
	}
	log := since(t, mark)
	evictions := log.By("dave").Where(func(r cluster.Request) bool { return r.Subresource == "eviction" })
	if len(evictions) != len(pods) {
		t.Errorf("want one call per pod, got:\n%s", evictions)
	}
	for _, r := range evictions {
		if !r.DryRun || r.Code != http.StatusCreated {
			t.Errorf("want it to be an accepted dry run: %v", r)
		}
	}
	lease := translate.LeaseName("dave.users.drawbridge.dev", node)
	noWrites(t, log.By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Namespace == namespace || r.Name == lease // A new lease is looked for below.
	}))
	for _, pod := range pods {
		noRequest(t, pod)
		lives(t, pod)
	}
	noLease(t, "dave", node)
	now := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: node}, now); err != nil {
		t.Fatal(err)
	}
	if now.Spec.Unschedulable {
		t.Error("the node was cordoned")
	}
}
