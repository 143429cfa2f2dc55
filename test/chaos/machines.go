//go:build unix

package chaos

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// machinePolicy evacuates the pods of a workload, which are their own machines.
func machinePolicy(name, interceptor, app string) *v1alpha1.EvacuationPolicy {
	const path = "/metadata/annotations/chaos.example.com~1evacuate"
	is := func(key string) string {
		return fmt.Sprintf("workload.?metadata.?annotations[?'%s'].orValue('') == 'true'", key)
	}
	return &v1alpha1.EvacuationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EvacuationPolicySpec{
			Interceptor: interceptor,
			Pods:        v1alpha1.CoveredPods{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: app, testLabel: name}}},
			Strategy:    "'LiveMigrate'",
			Mark:        &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "add", Path: path, Value: "'true'"}}},
			Unmark:      &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "test", Path: path, Value: "'true'"}, {Op: "remove", Path: path}}},
			Evacuating:  is(evacuateAnnotation),
			Done:        is(movedAnnotation),
			OnFailure:   v1alpha1.OnFailureHold,
		},
	}
}

// createPolicy makes the policy of a workload of machines, and its registration.
func (r *run) createPolicy(ctx context.Context, workload *Workload) error {
	name := fmt.Sprintf("vm.%s.%s.chaos.example.com", workload.Name, r.namespace)
	r.history.Names[workload.Name] = []string{name}
	policy := machinePolicy(r.policyOf(workload), name, workload.Name)
	if err := r.world.admin.Create(ctx, policy); err != nil {
		return fmt.Errorf("create policy of %s: %w", workload.Name, err)
	}
	registration := builder.EvictionInterceptor(name).InNamespace(r.namespace).Pods(builder.AppLabel, workload.Name)
	registration.EvictionInterceptor.Generation = 0
	if r.history.Plan.Mode == ModeAlways {
		registration.Guard(v1alpha1.GuardAlways)
	}
	if err := r.world.admin.Create(ctx, registration.Obj()); err != nil {
		return fmt.Errorf("register %s: %w", name, err)
	}
	platform := &platform{client: r.world.admin, app: workload.Name, interceptor: name, habit: workload.Interceptors[0], ledger: r.ledger, wanted: r.wanted, busy: map[types.UID]bool{}}
	r.platforms = append(r.platforms, platform)
	return r.await(ctx, "policy of "+workload.Name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("conditions %+v", policy.Status.Conditions)
		}
		return nil
	})
}

// wanted reports whether a request for a pod runs.
func (r *run) wanted(pod types.UID) bool {
	for _, er := range r.observer.requestsNow() {
		if er.Name == string(pod) && outcome(er) == "" {
			return true
		}
	}
	return false
}

// policyOf is the name of the policy of a workload, and a label of its pods.
func (r *run) policyOf(workload *Workload) string { return r.namespace + "-" + workload.Name }

// platform moves the machines of a workload out of the pods that are marked.
type platform struct {
	client      client.Client
	app         string
	interceptor string
	habit       Behaviour
	ledger      *ledger
	// wanted reports whether a request for the pod runs.
	wanted func(pod types.UID) bool

	mu   sync.Mutex
	busy map[types.UID]bool
}

// run looks at every state of a pod.
func (p *platform) run(ctx context.Context, events <-chan *corev1.Pod) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case pod := <-events:
			marked, moved := pod.Annotations[evacuateAnnotation] == "true", pod.Annotations[movedAnnotation] == "true"
			if pod.Labels[builder.AppLabel] != p.app || pod.DeletionTimestamp != nil || marked == moved || !p.begin(pod.UID) {
				continue
			}
			group.Go(func() {
				defer p.end(pod.UID)
				switch {
				case marked:
					p.move(ctx, pod)
				case !p.wanted(pod.UID):
					p.back(ctx, pod)
				default:
					// The mark goes when the evacuation is complete, too, which is no
					// reason to bring a machine back.
				}
			})
		}
	}
}

func (p *platform) begin(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[pod] {
		return false
	}
	p.busy[pod] = true
	return true
}

func (p *platform) end(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[pod] = false
}

func (p *platform) move(ctx context.Context, pod *corev1.Pod) {
	if p.habit.Habit == Hangs || !rest(ctx, p.habit.Delay+p.habit.Work) {
		return
	}
	p.ledger.write(Entry{Deed: Finished, Pod: pod.UID, Interceptor: p.interceptor})
	p.annotate(ctx, pod, `"true"`)
}

// back undoes a move that nobody wants any more.
func (p *platform) back(ctx context.Context, pod *corev1.Pod) {
	if p.annotate(ctx, pod, "null") {
		p.ledger.write(Entry{Deed: Undone, Pod: pod.UID, Interceptor: p.interceptor})
	}
}

func (p *platform) annotate(ctx context.Context, pod *corev1.Pod, value string) bool {
	err := insist(ctx, "say where the machine is", func(ctx context.Context) error {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, pod.UID, movedAnnotation, value))
		err := p.client.Patch(ctx, pod.DeepCopy(), patch)
		if isOver(err) || apierrors.IsConflict(err) {
			return nil // The pod is gone, or another one has its name.
		}
		return err
	})
	return err == nil
}
