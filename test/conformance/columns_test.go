package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// What people see who ask for the short name.
func TestPrinterColumns(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)
	er := createRequest(t, c, ns)
	summarize := func(er *v1alpha1.EvictionRequest) { er.Status.Summary = v1alpha1.Summarize(er) }
	for _, write := range []change{
		together(targets(interceptorA, imperative), active(interceptorA), func(er *v1alpha1.EvictionRequest) { er.Status.NodeName, er.Status.Deadline = "node-1", at(900) }),
		together(report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.ExpectedFinishTime = at(600) }), summarize),
	} {
		write(er)
		if err := c.Status().Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
	}
	result, err := kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "--namespace", ns, "get", "er")
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(result.Stdout), "\n")
	if len(lines) != 2 {
		t.Fatalf("want a header and a row, got:\n%s", result.Stdout)
	}
	header := []string{"NAME", "POD", "NODE", "STATE", "INTERCEPTOR", "BUDGET", "ETA", "DEADLINE", "REQUESTERS", "AGE"}
	if diff := cmp.Diff(header, strings.Fields(lines[0])); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	row := []string{er.Name, "web-1", "node-1", "Intercepting", "a.example.com", "1/2", at(600).UTC().Format("2006-01-02T15:04:05Z"), at(900).UTC().Format("2006-01-02T15:04:05Z"), "1"}
	got := strings.Fields(lines[1])
	if diff := cmp.Diff(row, got[:len(got)-1]); diff != "" {
		t.Errorf("row without the age (-want +got):\n%s", diff)
	}
}
