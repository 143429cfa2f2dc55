//go:build unix

package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// covering creates a hook and waits until it is known.
func covering(t *testing.T, hook *v1alpha1.EvacuationHook) {
	t.Helper()
	hook.Generation = 0
	create(t, hook)
	waiting.Eventually(t, "hook "+hook.Name+" to be looked at", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err
		}
		if hook.Status.ObservedGeneration == 0 {
			return errors.New("nobody has looked at it")
		}
		return nil
	})
}

// A hook with a native key has one turn: the native one of the pods that name the key.
func TestHooksAnswerNatively(t *testing.T) {
	shareManager(t)
	t.Run("a wait, asked for by a call", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		key := in(namespace, save)
		hook := builder.EvacuationHook(namespace, "ready").NativeKey(key).Obj()
		hook.Spec.Wait.Until = "pod.metadata.labels.?ready.orValue('') == 'yes'"
		covering(t, hook)
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label("app", "db").Responders(key).Obj())
		calls(t, pod)
		e := waitEviction(t, pod, "in the hands of the hook", func(e *lifecyclev1alpha1.Eviction) bool {
			return turnOf(key)(e) && e.Status.Responders[0].HeartbeatTime != nil
		})
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(hook), hook); err != nil || len(hook.Status.Runs) != 1 || hook.Status.Runs[0].Eviction != e.Name {
			t.Errorf("runs %+v, error %v", hook.Status.Runs, err)
		}
		lives(t, pod)
		if err := admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"ready":"yes"}}}`))); err != nil {
			t.Fatal(err)
		}
		gone(t, pod)
		er := cluster.WaitRequest(t, admin, pod, "evicted", v1alpha1.IsFinished)
		if slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
			return i.Name == v1alpha1.HookInterceptor(client.ObjectKeyFromObject(hook))
		}) {
			t.Errorf("it has another turn: %+v", er.Status.TargetInterceptors)
		}
		e = waitEviction(t, pod, "evicted", isEvicted)
		said := ptr.Deref(e.Status.Responders[0].Message, "")
		if stateOf(e, key) != lifecyclev1alpha1.ResponderStateCompleted || !strings.HasPrefix(said, "Hook ready: ") {
			t.Errorf("%s; it said %q", says(e), said)
		}
	})
	t.Run("a Job, which is canceled", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		key := in(namespace, migrate)
		// It must not end by itself before it is canceled.
		covering(t, builder.EvacuationHook(namespace, "dump").NativeKey(key).Job(`{"spec": {"template": {
			"metadata": {"annotations": {"`+cluster.CompleteAfterAnnotation+`": "1h"}},
			"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}
		}}}`).Obj())
		pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Responders(key).Obj())
		r := wants(t, pod)
		e := waitEviction(t, pod, "in the hands of the hook", turnOf(key))
		jobs := func(ctx context.Context) ([]batchv1.Job, error) {
			var list batchv1.JobList
			err := admin.List(ctx, &list, client.InNamespace(namespace))
			return list.Items, err
		}
		waiting.Eventually(t, "a Job that belongs to the Eviction", func(ctx context.Context) error {
			found, err := jobs(ctx)
			if err != nil || len(found) != 1 {
				return errors.Join(err, fmt.Errorf("%d Jobs", len(found)))
			}
			if o := found[0].OwnerReferences; len(o) != 1 || o[0].Kind != "Eviction" || o[0].UID != e.UID {
				return waiting.InVain(fmt.Errorf("its owners are %+v", o))
			}
			return nil
		})
		withdraw(t, r)
		waitEviction(t, pod, "canceled", isCanceled)
		waiting.Eventually(t, "the end of the Job", func(ctx context.Context) error {
			found, err := jobs(ctx)
			if err != nil || slices.ContainsFunc(found, func(j batchv1.Job) bool { return j.DeletionTimestamp.IsZero() }) {
				return errors.Join(err, fmt.Errorf("%d Jobs", len(found)))
			}
			return nil
		})
		lives(t, pod)
	})
}
