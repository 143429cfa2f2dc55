//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// seedsEnv has further seeds to run, separated by commas.
const seedsEnv = "DRAWBRIDGE_CHAOS_SEEDS"

// The short version of `make chaos`, and the proof that it can fail.
func TestDrainsUnderFire(t *testing.T) {
	c := cluster.ForTest(t, ClusterOptions(true))
	world, err := NewWorld(t.Context(), c, build(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the policies are those that people get", func(t *testing.T) { hasPolicies(t, world) })
	t.Run("every promise is kept", func(t *testing.T) { keepsPromises(t, world) })
	// A bug of singletons needs minutes: docs/chaos.md says how to see it.
	t.Run("a manager that skips interceptors, and knows no waves, does not go unnoticed", func(t *testing.T) {
		world.Use(build(t, "chaosbug,chaosbugwaves"))
		judged(t, world, 3, func(v Verdict) bool {
			broken := map[string]bool{}
			for _, violation := range v.Violations {
				broken[violation.Promise] = true
			}
			return broken[PromiseDone] && broken[PromiseWaves]
		})
	})
}

// hasPolicies compares the admission policies with those of the chart's default values,
// without which attacks would be judged that nobody can make. Only where the webhook is
// differs: it has no Service here.
func hasPolicies(t *testing.T, world *World) {
	t.Helper()
	url := fmt.Sprintf("https://localhost:%d", world.inst.WebhookPort)
	objects, err := install.Render(t.Context(), install.Options{Values: map[string]any{"webhook": map[string]any{"url": url}}})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(object *unstructured.Unstructured) any { return object.Object["spec"] }
	want, got := map[string]any{}, map[string]any{}
	for _, object := range objects {
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		default:
			continue
		}
		name := object.GetKind() + " " + object.GetName()
		here := &unstructured.Unstructured{}
		here.SetGroupVersionKind(object.GroupVersionKind())
		if err := world.admin.Get(t.Context(), client.ObjectKeyFromObject(object), here); err != nil {
			t.Error(err)
			continue
		}
		// What the API server adds to it, it adds to both.
		renamed := object.DeepCopy()
		renamed.SetName("copy-of-" + object.GetName())
		if err := world.admin.Create(t.Context(), renamed, client.DryRunAll); err != nil {
			t.Error(err)
			continue
		}
		want[name], got[name] = spec(renamed), spec(here)
	}
	if len(want) == 0 {
		t.Error("the chart has no policies")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies (-those of the chart +those of the run):\n%s", diff)
	}
}

// build builds the manager with build tags.
func build(t *testing.T, tags string) string {
	t.Helper()
	manager, err := Build(t.Context(), t.TempDir(), tags)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// judged runs a seed and returns the verdict. What happened is told if it is not as wanted.
func judged(t *testing.T, world *World, seed uint64, wanted func(Verdict) bool) Verdict {
	t.Helper()
	h, err := world.Run(t.Context(), MakePlan(seed))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	v := Check(h)
	t.Logf("seed %d: %s", seed, v)
	if !wanted(v) {
		path := filepath.Join(world.Cluster.Dir(), "logs", "timeline-"+strconv.FormatUint(seed, 10)+".txt") // Kept with the logs.
		if err := os.WriteFile(path, []byte(h.Plan.String()+h.Timeline()), 0o600); err != nil {
			t.Error(err)
		}
		t.Errorf("seed %d: %v\n%s", seed, v.Violations, &h.Plan)
	}
	return v
}

func keepsPromises(t *testing.T, world *World) {
	t.Helper()
	// Both have a policy engine: it refuses Jobs and requests, by 403 and by 422. `make chaos`
	// has two hundred others.
	seeds := []uint64{5, 8}
	for text := range strings.SplitSeq(os.Getenv(seedsEnv), ",") {
		if text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s must be seeds separated by commas: %v", seedsEnv, err)
		}
		seeds = append(seeds, seed)
	}
	intercepted, refused := 0, 0
	for _, seed := range seeds {
		v := judged(t, world, seed, func(v Verdict) bool { return len(v.Violations) == 0 })
		intercepted += v.Intercepted
		refused += v.Refused
	}
	if intercepted == 0 {
		t.Error("no intercepted pod was evicted, so nothing was proved")
	}
	if refused == 0 {
		t.Error("no write was refused, so nothing was proved of the policy engine")
	}
}
