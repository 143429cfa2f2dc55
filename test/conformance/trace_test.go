package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// trace is every version of one request there ever was: a watch leaves none out.
type trace struct {
	// Key of the request.
	client.ObjectKey

	mu       sync.Mutex
	versions []*v1alpha1.EvictionRequest
	failure  error
	ended    bool
}

// follow begins the trace of a request that does not exist yet. When the test
// ends, all its versions must satisfy what holds for every request at any time.
func follow(t *testing.T, key client.ObjectKey) *trace {
	t.Helper()
	c, err := client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	// Not the context of the test, which ends before its cleanup.
	w, err := c.Watch(context.WithoutCancel(t.Context()), &v1alpha1.EvictionRequestList{}, client.InNamespace(key.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", key.Name)})
	if err != nil {
		t.Fatalf("watch request: %v", err)
	}
	tr := &trace{ObjectKey: key}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			tr.take(e)
		}
	}()
	t.Cleanup(func() {
		tr.end()
		w.Stop()
		<-done
		tr.checkInvariants(t)
	})
	return tr
}

func (tr *trace) take(e watch.Event) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch er, ok := e.Object.(*v1alpha1.EvictionRequest); {
	case tr.ended:
		// A watch that is stopped complains about it.
	case !ok:
		tr.failure = fmt.Errorf("the watch says %s: %v", e.Type, e.Object)
	case e.Type != watch.Deleted:
		tr.versions = append(tr.versions, er)
	}
}

func (tr *trace) end() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.ended = true
}

// all returns the versions, in order, up to the one that is stored now at least.
func (tr *trace) all(t *testing.T) []*v1alpha1.EvictionRequest {
	t.Helper()
	now := &v1alpha1.EvictionRequest{}
	if err := asAdmin(t).Get(t.Context(), tr.ObjectKey, now); err != nil {
		t.Fatalf("get request: %v", err)
	}
	var versions []*v1alpha1.EvictionRequest
	await(t, "the watch to catch up", func(context.Context) error {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if tr.failure != nil {
			t.Fatal(tr.failure)
		}
		versions = slices.Clone(tr.versions)
		if !slices.ContainsFunc(versions, func(er *v1alpha1.EvictionRequest) bool { return er.ResourceVersion == now.ResourceVersion }) {
			return fmt.Errorf("version %s is missing", now.ResourceVersion)
		}
		return nil
	})
	return versions
}

// turns is how the request went, as the different values of progress.
func (tr *trace) turns(t *testing.T) []string {
	t.Helper()
	var turns []string
	for _, er := range tr.all(t) {
		turns = append(turns, progress(er))
	}
	return slices.Compact(turns)
}

// progress is who had a turn, who has it (in brackets), and the outcome. The names
// are shortened: "a [b]", "a b [IE]", "a b IE Evicted".
func progress(er *v1alpha1.EvictionRequest) string {
	var words []string
	for _, name := range er.Status.ProcessedInterceptors {
		words = append(words, shorten(name))
	}
	for _, name := range er.Status.ActiveInterceptors {
		words = append(words, "["+shorten(name)+"]")
	}
	for _, condition := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if meta.IsStatusConditionTrue(er.Status.Conditions, condition) {
			words = append(words, condition)
		}
	}
	return strings.Join(words, " ")
}

func shorten(interceptor string) string {
	if interceptor == imperative {
		return "IE"
	}
	return strings.TrimSuffix(interceptor, ".example.com")
}

// checkInvariants is what holds for every version of every request, whoever wrote
// it (statements 24, 32, 37, 39, 66 and 93).
func (tr *trace) checkInvariants(t *testing.T) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.failure != nil {
		t.Error(tr.failure)
	}
	before := &v1alpha1.EvictionRequest{}
	for i, er := range tr.versions {
		if er.UID != before.UID {
			before = &v1alpha1.EvictionRequest{} // A new request of the same name.
		}
		for _, broken := range brokenInvariants(before, er) {
			t.Errorf("request %s, version %d of %d: %s\nbefore: %+v\n after: %+v", tr.Name, i+1, len(tr.versions), broken, before.Status, er.Status)
		}
		before = er
	}
}

func brokenInvariants(before, after *v1alpha1.EvictionRequest) []string {
	var broken []string
	check := func(ok bool, what string) {
		if !ok {
			broken = append(broken, what)
		}
	}
	old, now := before.Status, after.Status
	isTrue := func(s v1alpha1.EvictionRequestStatus, condition string) bool {
		return meta.IsStatusConditionTrue(s.Conditions, condition)
	}

	check(len(now.ActiveInterceptors) <= 1, "more than one interceptor is active")
	check(len(now.ProcessedInterceptors) >= len(old.ProcessedInterceptors) &&
		slices.Equal(old.ProcessedInterceptors, now.ProcessedInterceptors[:len(old.ProcessedInterceptors)]), "processed interceptors are never removed or reordered")
	check(len(now.ProcessedInterceptors) <= len(old.ProcessedInterceptors)+1, "at most one interceptor is processed per write")
	check(len(old.TargetInterceptors) == 0 || apiequality.Semantic.DeepEqual(old.TargetInterceptors, now.TargetInterceptors), "targetInterceptors never change")
	check(now.ObservedGeneration >= old.ObservedGeneration, "observedGeneration never decreases")
	check(now.ObservedGeneration <= after.Generation, "observedGeneration is never ahead")
	check(!isTrue(now, v1alpha1.ConditionEvicted) || !isTrue(now, v1alpha1.ConditionCanceled), "Evicted and Canceled are never both True")
	for _, final := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		check(!isTrue(old, final) || isTrue(now, final), final+" is never taken back")
		check(!isTrue(now, final) || len(now.ActiveInterceptors) == 0, "nobody is active when the request is "+final)
	}
	if len(now.ActiveInterceptors) == 1 {
		next := len(now.ProcessedInterceptors)
		check(!slices.Equal(old.ActiveInterceptors, now.ActiveInterceptors) || old.ActivationTime.Equal(now.ActivationTime), "activationTime changes only with the turn")
		check(next < len(now.TargetInterceptors) && now.TargetInterceptors[next].Name == now.ActiveInterceptors[0], "the active interceptor is the one after the processed ones")
	}
	return broken
}

// eventsOf returns how often each reason was told about the request.
func (w *world) eventsOf(t *testing.T, key client.ObjectKey) map[string]int {
	t.Helper()
	list := &corev1.EventList{}
	if err := w.admin.List(t.Context(), list, client.InNamespace(key.Namespace)); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "EvictionRequest" && e.InvolvedObject.Name == key.Name {
			told[e.Reason] += max(1, int(e.Count))
		}
	}
	return told
}
