//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// storyOf is the story of a pod as an operator hears it, some time ahead.
func storyOf(t *testing.T, pod *corev1.Pod, ahead time.Duration) why.Story {
	t.Helper()
	p := &pluginCall{user: "olga", group: operators, clock: testingclock.NewFakeClock(time.Now().Add(ahead))}
	if code, said := p.run(t.Context(), t, "why", pod.Name, "-n", pod.Namespace, "-o", "json"); code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	var told why.Story
	if err := json.Unmarshal([]byte(p.printed()), &told); err != nil {
		t.Fatal(err)
	}
	// Registrations that are not in force are told of for every pod; those are of other tests.
	told.Notes = slices.DeleteFunc(told.Notes, func(note string) bool {
		return strings.HasPrefix(note, "EvictionInterceptor ") && !strings.Contains(note, nameIn(pod.Namespace, ""))
	})
	if len(told.Notes) > 0 {
		t.Logf("notes: %q", told.Notes)
	}
	return told
}

func TestWhyTellsWhatBlocksAPod(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	on := func(name string) *builder.PodWrapper {
		return builder.Pod(namespace, name).NodeSelector(testLabel, namespace).Label("app", name)
	}
	silent := nameIn(namespace, "silent")
	plain := createPod(t, on("plain").Obj())
	budgeted := createPod(t, on("budgeted").Obj())
	create(t, builder.Budget(namespace, "keep").Selects("app", "budgeted").MinAvailable("1").Obj())
	waiting := createPod(t, on("waiting").Interceptors(silent).Obj())

	eventually(t, "the budget to be counted", func(context.Context) error {
		return wantVerdict(storyOf(t, budgeted, 0), why.VerdictBudgetNeverAllows)
	})
	told := storyOf(t, budgeted, 0)
	if diff := cmp.Diff([]why.Budget{{Name: "keep", Never: "can never allow a disruption (minAvailable is 1 of 1 pod)", Why: "can never allow a disruption (minAvailable is 1 of 1 pod); 1 of 1 pods healthy, 1 needed"}}, told.Budgets); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if told.Answer.Evicts || !strings.HasPrefix(told.Answer.Text, "refused (budget): ") {
		t.Errorf("answer %+v", told.Answer)
	}

	told = storyOf(t, plain, 0)
	if diff := cmp.Diff([]any{why.VerdictNothingBlocks, true, 0}, []any{told.Verdict, told.Answer.Evicts, len(told.Notes)}); diff != "" {
		t.Errorf("verdict, whether it would be evicted and notes (-want +got):\n%s", diff)
	}
	lives(t, plain) // A dry run evicts nobody.

	told = storyOf(t, waiting, 0)
	if diff := cmp.Diff([]any{why.VerdictWouldIntercept, 0, "annotation of the pod"}, []any{told.Verdict, len(told.Notes), told.Interceptors[0].Source}); diff != "" {
		t.Errorf("verdict, notes and source (-want +got):\n%s", diff)
	}
	noRequest(t, waiting)

	startDrain(t, "carol", node, "--pod-selector=app=waiting")
	waitRequest(t, waiting, "intercepted", activeIs(silent))
	told = storyOf(t, waiting, 10*time.Minute)
	if err := wantVerdict(told, why.VerdictInterceptorSilent); err != nil {
		t.Error(err)
	}
	wantAnswer := `429: Eviction triggered evacuation: waiting for interceptor "` + silent + `" (1 of 2)`
	if diff := cmp.Diff(wantAnswer, told.Answer.Text); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if len(told.Requesters) != 1 || told.Requesters[0].Name != "carol.users.drawbridge.dev" {
		t.Errorf("requesters %+v", told.Requesters)
	}
	kubectl(t, "carol", "uncordon", node)
}

type wrongVerdictError struct{ told why.Story }

func (w wrongVerdictError) Error() string { return string(w.told.Verdict) + ": " + w.told.Headline }

func wantVerdict(told why.Story, want why.Verdict) error {
	if told.Verdict != want {
		return wrongVerdictError{told}
	}
	return nil
}
