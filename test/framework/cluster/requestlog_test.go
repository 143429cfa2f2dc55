package cluster_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

func since(tb testing.TB, mark cluster.Mark) cluster.Requests {
	tb.Helper()
	return must(shared.RequestLog().Since(tb.Context(), mark))(tb)
}

func TestRequestLogTellsWhoAskedForWhat(t *testing.T) {
	namespace := shared.Namespace(t)
	pod := createReady(t, shared, builder.Pod(namespace, "web").Obj())
	config := must(shared.ConfigFor("request-log-teller", "system:masters"))(t)
	config.UserAgent = "teller/1.0"
	client := clientFor(t, config)

	mark := shared.RequestLog().Mark()
	if err := client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}); err != nil {
		t.Fatal(err)
	}
	_, err := client.CoreV1().Pods(namespace).Get(t.Context(), "nobody", metav1.GetOptions{})
	if err == nil {
		t.Fatal("there is a pod nobody")
	}
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if err := evict(t.Context(), client, pod); err != nil {
		t.Fatal(err)
	}

	got := since(t, mark).By("request-log-teller")
	type row struct {
		Verb, Resource, Subresource, Namespace, Name, UserAgent string
		Code                                                    int
		DryRun, Writes, Body                                    bool
	}
	want := []row{
		{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: namespace, Name: "web", UserAgent: "teller/1.0", Code: 201, DryRun: true, Writes: true, Body: true},
		{Verb: "get", Resource: "pods", Namespace: namespace, Name: "nobody", UserAgent: "teller/1.0", Code: 404},
		{Verb: "delete", Resource: "pods", Namespace: namespace, Name: "web", UserAgent: "teller/1.0", Code: 200, DryRun: true, Writes: true, Body: true},
		{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: namespace, Name: "web", UserAgent: "teller/1.0", Code: 201, Writes: true, Body: true},
	}
	var rows []row
	for _, r := range got {
		rows = append(rows, row{r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name, r.UserAgent, r.Code, r.DryRun, r.Writes(), len(r.Body) > 0})
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("requests since the mark (-want +got):\n%s", diff)
	}
	if later := since(t, shared.RequestLog().Mark()).By("request-log-teller"); len(later) > 0 {
		t.Errorf("answered before the mark, reported after it:\n%s", later)
	}
}

// The client reads an answer a moment before the server logs it. No request may get
// lost in that moment.
func TestRequestLogLosesNothing(t *testing.T) {
	client := clientFor(t, must(shared.ConfigFor("request-log-crowd", "system:masters"))(t))
	for range 20 {
		mark := shared.RequestLog().Mark()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if _, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		got := since(t, mark).By("request-log-crowd").Where(func(r cluster.Request) bool { return r.Code == 200 })
		if len(got) != 10 {
			t.Fatalf("want 10 answered requests, got %d:\n%s", len(got), got)
		}
	}
}

func TestWatchesAreLoggedWhileTheyGoOn(t *testing.T) {
	client := clientFor(t, must(shared.ConfigFor("request-log-watcher", "system:masters"))(t))
	mark := shared.RequestLog().Mark()
	watch := must(client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	got := since(t, mark).By("request-log-watcher")
	if len(got) != 1 || got[0].Verb != "watch" || got[0].Writes() {
		t.Errorf("want the watch alone, got:\n%s", got)
	}
}
