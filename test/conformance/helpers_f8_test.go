package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// noCompletionGrace ends a request at once when its pod has ended, although the
// active interceptor has not reported yet (ruling R11).
func noCompletionGrace(o *app.Options) { o.Policy.CompletionGrace = 0 }

// longCompletionGrace gives an interceptor that ends the pod itself the time to
// report it, however slow the machine is.
func longCompletionGrace(o *app.Options) { o.Policy.CompletionGrace = time.Hour }

// heard is everything the API server was asked about the namespace so far.
func (w *world) heard(t *testing.T) cluster.Requests {
	t.Helper()
	requests, err := kube.RequestLog().Since(t.Context(), w.mark)
	if err != nil {
		t.Fatal(err)
	}
	return requests.Where(func(r cluster.Request) bool { return r.Namespace == w.ns })
}

// evictionsOf are the calls by which the manager asked for this pod's eviction.
func (w *world) evictionsOf(t *testing.T, pod *corev1.Pod) cluster.Requests {
	t.Helper()
	return w.asked(t, func(r cluster.Request) bool { return evictCall(r) && r.Name == pod.Name })
}

// neverEvicted fails the test if the manager has asked for the pod's eviction.
func (w *world) neverEvicted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if calls := w.evictionsOf(t, pod); len(calls) > 0 {
		t.Errorf("pod %s must not be evicted:\n%s", pod.Name, calls)
	}
}

// gone waits until the very pod is no more.
func (w *world) gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	await(t, "pod "+pod.Name+" to go", func(ctx context.Context) error {
		now := &corev1.Pod{}
		switch err := w.admin.Get(ctx, client.ObjectKeyFromObject(pod), now); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case now.UID != pod.UID:
			return nil
		}
		return fmt.Errorf("it is still there, deleted at %v", now.DeletionTimestamp)
	})
}

// witness evicts a pod of its own. When that is done the evictor has had its
// chance to do what it must not do to others.
func (w *world) witness(t *testing.T, name string) {
	t.Helper()
	pod := w.pod(t, name)
	w.untilTrue(t, w.request(t, pod).ObjectKey, v1alpha1.ConditionEvicted)
}

// blockWeb creates a PodDisruptionBudget that lets no pod of the Deployment "web"
// go, and waits until the disruption controller knows it.
func (w *world) blockWeb(t *testing.T) *policyv1.PodDisruptionBudget {
	t.Helper()
	budget := builder.Budget(w.ns, "web").Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj()
	if err := w.admin.Create(t.Context(), budget); err != nil {
		t.Fatalf("create budget: %v", err)
	}
	await(t, "the budget to be in force", func(ctx context.Context) error {
		if err := w.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ObservedGeneration != budget.Generation || budget.Status.CurrentHealthy == 0 {
			return fmt.Errorf("status %+v", budget.Status)
		}
		return nil
	})
	return budget
}

// deployment creates a Deployment and returns its pods when they are Ready.
func (w *world) deployment(t *testing.T, deployment *builder.DeploymentWrapper) []corev1.Pod {
	t.Helper()
	if err := w.admin.Create(t.Context(), deployment.Obj()); err != nil {
		t.Fatalf("create deployment: %v", err)
	}
	var pods []corev1.Pod
	await(t, "the pods of the deployment", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := w.admin.List(ctx, list, client.InNamespace(w.ns), client.MatchingLabels{builder.AppLabel: deployment.Name}); err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning })
		if want := int(*deployment.Spec.Replicas); len(pods) != want {
			return fmt.Errorf("%d of %d run", len(pods), want)
		}
		return nil
	})
	return pods
}

// untilRetries waits until imperative-eviction.k8s.io has told of so many failed
// evictions.
func (w *world) untilRetries(t *testing.T, key client.ObjectKey, n int32) *v1alpha1.EvictionRequest {
	t.Helper()
	return w.until(t, key, fmt.Sprintf("%d failed evictions", n), func(er *v1alpha1.EvictionRequest) bool {
		return v1alpha1.ReportOf(er, imperative).Retries >= n
	})
}

// timeline advances the manager's clock and knows afterwards what it showed when
// a request came.
type timeline struct {
	*world
	offsets []offset
}

// offset is how far the manager's clock was ahead of the real one from then on.
type offset struct {
	from  time.Time
	ahead time.Duration
}

func (l *timeline) advanceTo(at time.Time) {
	l.world.advanceTo(at)
	ahead := l.mgr.Clock.Offset()
	l.offsets = append(l.offsets, offset{from: l.mgr.Clock.Now().Add(-ahead), ahead: ahead})
}

// when is what the manager's clock showed when the API server received a request.
func (l *timeline) when(r cluster.Request) time.Time {
	var ahead time.Duration
	for _, o := range l.offsets {
		if !r.Time.Before(o.from) {
			ahead = o.ahead
		}
	}
	return r.Time.Add(ahead)
}

// ownMetrics are the metrics of a manager in this process, by series.
func ownMetrics(t *testing.T, mgr *manager.Manager) map[string]float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(mgr.Metrics, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("metrics: %d %s", answer.Code, answer.Body)
	}
	return parseMetrics(t, answer.Body.String())
}

// scrape reads a metrics endpoint, by series.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	defer func() { _ = answer.Body.Close() }() // Only read.
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %s, %v", answer.Status, err)
	}
	return parseMetrics(t, string(text))
}

// parseMetrics reads the text format: a series and its value per line.
func parseMetrics(t *testing.T, text string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		found[line[:end]] = value
	}
	return found
}

// seriesOf are the series of one request, by what they are called in the KEP,
// the interceptor behind it if there is one.
func seriesOf(metrics map[string]float64, er client.ObjectKey) map[string]float64 {
	const prefix = "evictionrequest_controller_"
	found := map[string]float64{}
	for series, value := range metrics {
		name, labels, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, prefix) || !strings.Contains(labels, fmt.Sprintf("evictionrequest=%q", er.Name)) ||
			!strings.Contains(labels, fmt.Sprintf("namespace=%q", er.Namespace)) {
			continue
		}
		name = strings.TrimPrefix(name, prefix)
		if _, interceptor, ok := strings.Cut(labels, `interceptor="`); ok {
			interceptor, _, _ = strings.Cut(interceptor, `"`)
			name += " " + interceptor
		}
		found[name] = value
	}
	return found
}

// requester is somebody who knows the API and says itself what it wants.
type thirdParty struct {
	client client.Client
	// name in spec.requesters, and the field manager.
	name string
}

// newRequester makes a user who may write requests and delete pods.
func (w *world) newRequester(t *testing.T, user, name string) thirdParty {
	t.Helper()
	if err := grant(t.Context(), w.admin, w.ns, user, writeRequests, deletePods); err != nil {
		t.Fatal(err)
	}
	return thirdParty{client: as(t, user), name: name}
}

// create makes a new request for the pod. A user's permissions take a moment until
// they are known everywhere.
func (r thirdParty) create(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters(r.name).Obj()
	var err error
	await(t, r.name+" to create", func(ctx context.Context) error {
		if err = r.client.Create(ctx, er.DeepCopy(), client.FieldOwner(r.name)); apierrors.IsForbidden(err) {
			return err
		}
		return nil
	})
	return err
}

// apply says by server-side apply that it wants the pod evicted, or that it does
// not any more.
func (r thirdParty) apply(t *testing.T, pod *corev1.Pod, wanted bool) {
	t.Helper()
	cluster.ApplyWish(t, r.client, r.name, pod, wanted)
}

// requestersOf are the names in a request.
func requestersOf(er *v1alpha1.EvictionRequest) []string {
	names := make([]string, len(er.Spec.Requesters))
	for i, r := range er.Spec.Requesters {
		names[i] = r.Name
	}
	return names
}

// startInterceptor runs examples/interceptor for the pods of the namespace, under a
// service account of the same name that may do what its README says. It goes by
// the real clock.
func (w *world) startInterceptor(t *testing.T, name string, work time.Duration) *cluster.Program {
	t.Helper()
	return w.startExample(t, manager.BuildInterceptor, name, work)
}

// startExample is startInterceptor for any variant of the example.
func (w *world) startExample(t *testing.T, build func(context.Context) (string, error), name string, work time.Duration) *cluster.Program {
	t.Helper()
	binary, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	where := metav1.ObjectMeta{Namespace: w.ns, Name: name}
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: where, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}, // Plain client-go.
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: where,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: name}},
		},
	} {
		if err := w.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := kube.KubeconfigFileForServiceAccount(t.Context(), w.ns, name)
	if err != nil {
		t.Fatal(err)
	}
	// Not the context of the test: it ends the program before the cleanup could.
	program, err := kube.StartProgram(context.WithoutCancel(t.Context()), cluster.ProgramOptions{}, binary,
		"--kubeconfig="+kubeconfig, "--name="+name, "--namespace="+w.ns, "--work="+work.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Kill(); err != nil {
			t.Errorf("kill interceptor: %v", err)
		}
		<-program.Done()
	})
	waitLine(t, program, "is waiting for its turn")
	return program
}

// waitLine waits for a line of a program with that text in it.
func waitLine(t *testing.T, program *cluster.Program, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	if _, err := program.WaitLine(ctx, text); err != nil {
		var said []string
		for _, line := range program.Lines() {
			said = append(said, line.Text)
		}
		t.Fatalf("%v; the program said:\n%s", err, strings.Join(said, "\n"))
	}
}

// reportsBy are the successful writes of an interceptor's service account to the
// status of requests.
func (w *world) reportsBy(t *testing.T, interceptor string) cluster.Requests {
	t.Helper()
	user := "system:serviceaccount:" + w.ns + ":" + interceptor
	return w.heard(t).By(user).Where(func(r cluster.Request) bool {
		return r.Writes() && r.Subresource == "status" && r.Code < http.StatusBadRequest
	})
}

// evictionOf reads the body of an eviction call.
func evictionOf(t *testing.T, r cluster.Request) policyv1.Eviction {
	t.Helper()
	var eviction policyv1.Eviction
	if err := json.Unmarshal(r.Body, &eviction); err != nil {
		t.Fatalf("body %s: %v", r.Body, err)
	}
	return eviction
}

// valueOf is the value of the one series of that name that has the label.
func valueOf(metrics map[string]float64, name, label string) (float64, bool) {
	for series, value := range metrics {
		if got, labels, _ := strings.Cut(series, "{"); got == name && strings.Contains(labels, label) {
			return value, true
		}
	}
	return 0, false
}
