//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// The test of KEP-4563, section "Were upgrade and rollback tested?", in its eight
// steps: an upgrade is an installation here, a downgrade a removal that keeps the
// requests.
func TestDisableAndEnableWithRequestsInFlight(t *testing.T) {
	// 1. and 2. A cluster, and the upgrade.
	inst := installed(t, nil)
	args := slices.Concat(manager.PatientLease, []string{"--eviction-backoff-min=1s", "--eviction-backoff-max=1s"})
	p := start(t, inst, args...)
	namespace := kube.Namespace(t)

	// 3. Request A evicts pod A.
	podA := createPod(t, builder.Pod(namespace, "a").Obj())
	request(t, podA)
	gone(t, podA)
	waitCondition(t, podA, v1alpha1.ConditionEvicted)

	// 4. A budget does not let request B evict pod B.
	podB := createPod(t, builder.Pod(namespace, "b").Label(builder.AppLabel, "b").Obj())
	budget := builder.Budget(namespace, "b").Selects(builder.AppLabel, "b").MaxUnavailable("0").Obj()
	if err := admin.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget to count", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ObservedGeneration == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	request(t, podB)
	podC := intercepted(t, namespace, "c") // And one more, in the middle of its interceptor's turn.
	if err := evict(t.Context(), podC, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want 429", err)
	}
	taken(t, podC, time.Now()) // The answer comes before the turn.
	series := `evictionrequest_controller_imperative_evictions{evictionrequest="` + string(podB.UID) + `",namespace="` + namespace + `",pod="b"}`
	eventually(t, "the budget to be told", func(ctx context.Context) error {
		value, err := p.Metric(ctx, series)
		if err != nil {
			return err
		}
		er, err := requestOf(ctx, podB)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(er.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool {
			return s.Name == v1alpha1.ImperativeEvictionInterceptor
		})
		if value == 0 || i < 0 || er.Status.Interceptors[i].Message == "" {
			return fmt.Errorf("metric %v, status %+v", value, er.Status)
		}
		return nil
	})
	before := must(requestOf(t.Context(), podC))(t)

	// 5. The downgrade.
	command := startCleanup(t, inst, "--keep")
	must(command.WaitLine(t.Context(), "waiting for the manager to end: "))(t)
	stop(t, p)
	cleanedUp(t, command)
	uninstall(t)

	// 6. The budget goes, and pod B stays, as nobody evicts it.
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	if er := must(requestOf(t.Context(), podB))(t); len(er.Status.Conditions) > 0 {
		t.Errorf("request B was changed meanwhile: %+v", er.Status.Conditions)
	}
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(podB), now); err != nil || now.UID != podB.UID || now.DeletionTimestamp != nil {
		t.Errorf("pod B does not run on: %v", err)
	}

	// 7. The upgrade. 8. Request B evicts pod B.
	again := installed(t, nil)
	start(t, again, args...)
	gone(t, podB)
	waitCondition(t, podB, v1alpha1.ConditionEvicted)
	// And the third is where it was.
	after := must(requestOf(t.Context(), podC))(t)
	if diff := cmp.Diff(before.Status.ActiveInterceptors, after.Status.ActiveInterceptors); diff != "" {
		t.Errorf("request C (-before +after):\n%s", diff)
	}
	if err := evict(t.Context(), podC, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the drain that waits for pod C: got %v, want 429", err)
	}
}

// request asks for the eviction of a pod without a caller of the eviction API.
func request(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("rebalancer.example.com").Obj()
	er.UID, er.Status = "", v1alpha1.EvictionRequestStatus{}
	if err := admin.Create(t.Context(), er); err != nil {
		t.Fatal(err)
	}
}

func requestOf(ctx context.Context, pod *corev1.Pod) (*v1alpha1.EvictionRequest, error) {
	er := &v1alpha1.EvictionRequest{}
	return er, admin.Get(ctx, v1alpha1.RequestKey(pod), er)
}

func waitCondition(t *testing.T, pod *corev1.Pod, condition string) {
	t.Helper()
	eventually(t, "the request for pod "+pod.Name+" to be "+condition, func(ctx context.Context) error {
		er, err := requestOf(ctx, pod)
		if err == nil && !meta.IsStatusConditionTrue(er.Status.Conditions, condition) {
			err = fmt.Errorf("status %+v", er.Status)
		}
		return err
	})
}
