//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// The interceptors of the pods whose manager is killed.
const (
	checkpoint = "checkpoint.example.com"
	handover   = "handover.example.com"
)

// impatient is how little an interceptor may be silent in these tests, and how long
// a manager gives it after its start. The outages are longer than the one, and must
// still count as nobody's silence.
var impatient = []string{"--allow-short-heartbeat-deadline", "--heartbeat-deadline=1s", "--startup-grace=1h", "--eviction-backoff-min=1h", "--eviction-backoff-max=1h"}

// victim is a pod whose eviction is under way when the manager is killed.
type victim struct {
	node string
	pod  *corev1.Pod
	// drain is the kubectl that asked for it, which dies with the manager: without
	// its webhook the API server answers 500, and kubectl drain gives up on that.
	drain *cluster.Program
}

// stage is how far an eviction is when the manager is killed.
type stage struct {
	// budget does not allow the eviction, finalizer does not allow the pod's end.
	budget, finalizer bool
	// reach brings the eviction to the stage while a manager runs.
	reach func(t *testing.T, v *victim)
	// outage is what happens while none runs.
	outage func(t *testing.T, v *victim)
}

const lastBreath = "e2e.drawbridge.dev/last-breath"

// acceptedOnly is the stage nobody can wait for while the controllers run.
const acceptedOnly = "the request accepted and not looked at"

var stages = map[string]stage{
	acceptedOnly: {
		reach: func(t *testing.T, v *victim) {
			er := waitRequest(t, v.pod, "there", func(*v1alpha1.EvictionRequest) bool { return true })
			if diff := cmp.Diff(v1alpha1.EvictionRequestStatus{}, er.Status); diff != "" {
				t.Errorf("status of a request nobody has looked at (-want +got):\n%s", diff)
			}
		},
	},
	"the first interceptor active": {
		reach: func(t *testing.T, v *victim) { waitRequest(t, v.pod, "in progress", activeIs(checkpoint)) },
	},
	"between two interceptors": {
		reach:  func(t *testing.T, v *victim) { waitRequest(t, v.pod, "in progress", activeIs(checkpoint)) },
		outage: func(t *testing.T, v *victim) { complete(t, v.pod, checkpoint, time.Now) },
	},
	"the eviction blocked by a budget that is freed in the outage": {
		budget: true,
		reach: func(t *testing.T, v *victim) {
			completeAll(t, v.pod)
			waitRequest(t, v.pod, "blocked", blocked)
		},
		outage: func(t *testing.T, v *victim) { deleteBudget(t, v.pod) },
	},
	"the pod gone and the request not yet final": {
		finalizer: true,
		reach: func(t *testing.T, v *victim) {
			completeAll(t, v.pod)
			eventually(t, "the pod to be deleted", func(ctx context.Context) error {
				if err := admin.Get(ctx, client.ObjectKeyFromObject(v.pod), v.pod); err != nil {
					return err
				}
				if v.pod.DeletionTimestamp == nil {
					return fmt.Errorf("it is not")
				}
				return nil
			})
		},
		outage: func(t *testing.T, v *victim) {
			patch(t, v.pod, func() { v.pod.Finalizers = nil })
			gone(t, v.pod)
			if er := waitRequest(t, v.pod, "there", func(*v1alpha1.EvictionRequest) bool { return true }); len(er.Status.Conditions) > 0 {
				t.Errorf("the request is final already: %+v", er.Status)
			}
		},
	},
}

// completeAll reports for both interceptors, each in its turn, unless they have had it.
func completeAll(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, name := range []string{checkpoint, handover} {
		er := waitRequest(t, pod, "at or past "+name, func(er *v1alpha1.EvictionRequest) bool {
			return activeIs(name)(er) || slices.Contains(er.Status.ProcessedInterceptors, name)
		})
		if activeIs(name)(er) && er.Status.Interceptors[slices.IndexFunc(er.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.Name == name })].CompletionTime == nil {
			complete(t, pod, name, time.Now)
		}
	}
}

func deleteBudget(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := admin.Delete(t.Context(), builder.Budget(pod.Namespace, pod.Name).Obj()); err != nil {
		t.Fatal(err)
	}
}

// end is all that is left of an eviction in the end.
type end struct {
	Conditions []string
	Active     []string
	Processed  []string
	Completed  []string
}

func endOf(er *v1alpha1.EvictionRequest) end {
	e := end{Active: er.Status.ActiveInterceptors, Processed: er.Status.ProcessedInterceptors}
	for _, c := range er.Status.Conditions {
		e.Conditions = append(e.Conditions, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	for _, s := range er.Status.Interceptors {
		if s.CompletionTime != nil {
			e.Completed = append(e.Completed, s.Name)
		}
	}
	return e
}

// Killed at whatever stage, the next manager brings the eviction to the same end from
// the objects alone. The drains die with the manager and are started again.
func TestAKilledManagerIsMadeUpFor(t *testing.T) {
	victims := map[string]*victim{}
	for name, s := range stages {
		namespace := kube.Namespace(t)
		v := &victim{node: addNodes(t, namespace, 1)[0]}
		w := builder.Pod(namespace, "db-0").Node(v.node).Change(ofApp("db")).Interceptors(checkpoint, handover)
		if s.finalizer {
			w.Finalizer(lastBreath)
		}
		v.pod = createPod(t, w.Obj())
		if s.budget {
			createBudget(t, builder.Budget(namespace, v.pod.Name).Selects(builder.AppLabel, "db").MinAvailable("1").Obj(), 1)
		}
		victims[name] = v
	}
	// The drains outlive the subtests that start them.
	begin := func(of func(string) bool) {
		for name, v := range victims {
			if of(name) {
				v.drain = startDrain(t, "alice", v.node)
			}
		}
	}
	reach := func(t *testing.T, v *victim, s stage) { s.reach(t, v) }
	accepted := func(name string) bool { return name == acceptedOnly }
	others := func(name string) bool { return !accepted(name) }
	everyone := func(string) bool { return true }

	manager := startProcess(t, impatient...)
	begin(others)
	eachStage(t, stages, victims, "reach", reach, others)
	kill(t, manager, victims, others)

	// A manager that does not lead answers calls and looks at no request.
	occupyLeadership(t)
	manager = startProcess(t, append([]string{"--leader-elect=true"}, impatient...)...)
	begin(accepted)
	eachStage(t, stages, victims, "reach", reach, accepted)
	kill(t, manager, victims, accepted)

	eachStage(t, stages, victims, "outage", func(t *testing.T, v *victim, s stage) {
		if s.outage != nil {
			s.outage(t, v)
		}
	}, everyone)
	manager = startProcess(t, impatient...)
	begin(everyone)
	eachStage(t, stages, victims, "end", func(t *testing.T, v *victim, _ stage) {
		completeAll(t, v.pod)
		gone(t, v.pod)
		er := waitRequest(t, v.pod, "final", func(er *v1alpha1.EvictionRequest) bool { return len(er.Status.Conditions) > 0 })
		want := end{
			Conditions: []string{"Evicted=True PodDeleted"},
			Processed:  []string{checkpoint, handover, v1alpha1.ImperativeEvictionInterceptor},
			Completed:  []string{checkpoint, handover},
		}
		if diff := cmp.Diff(want, endOf(er)); diff != "" {
			t.Errorf("end (-want +got):\n%s", diff)
		}
		saysAll(t, "standard output", finishWell(t, v.drain).Stdout, "node/"+v.node+" drained")
	}, everyone)
	if err := manager.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// eachStage does the same for the victims of some stages, all at a time.
func eachStage[S, V any](t *testing.T, stages map[string]S, victims map[string]V, what string, do func(*testing.T, V, S), of func(name string) bool) {
	t.Helper()
	ok := t.Run(what, func(t *testing.T) {
		for name, s := range stages {
			if of(name) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					do(t, victims[name], s)
				})
			}
		}
	})
	if !ok {
		t.FailNow()
	}
}

// startProcess starts the built program.
func startProcess(t *testing.T, args ...string) *manager.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	manager := must(inst.StartProcess(ctx, manager.ProcessOptions{Args: args}))(t)
	t.Cleanup(func() {
		if err := manager.Kill(); err != nil {
			t.Error(err)
		}
	})
	return manager
}

// kill ends the manager and the drains of some victims as a power cut would.
func kill(t *testing.T, manager *manager.Process, victims map[string]*victim, of func(string) bool) {
	t.Helper()
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, v := range victims {
		if of(name) {
			killed(t, v.drain)
		}
	}
}

// occupyLeadership makes the leader somebody else for the rest of the test.
func occupyLeadership(t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: "drawbridge-leader"}}
	if err := admin.Delete(t.Context(), lease); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("somebody-else"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now,
	}
	create(t, lease)
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), lease); err != nil {
			t.Error(err)
		}
	})
}

// The API server goes away in the middle, as it does in every upgrade of a control
// plane. The manager and the interceptors see their connections break and go on. The
// requester is a native one: kubectl drain gives up when nobody answers.
func TestAnEvacuationSurvivesTheAPIServersRestart(t *testing.T) {
	// How long the API server needs to come back depends on the machine, and whoever may not
	// renew for too long ends, as it should; here it is about those who go on.
	m := startManager(t, func(o *app.Options) {
		o.LeaderElect, o.LeaseDuration, o.RenewDeadline = true, 3*time.Minute, 2*time.Minute
	})
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const first, second = "first.example.com", "second.example.com"
	interceptor := startInterceptor(t, namespace, first, 2*time.Second)
	startInterceptor(t, namespace, second, time.Second)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(first, second).Obj())
	newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
	waitLine(t, interceptor, "db-0: started")

	if err := kube.Component(cluster.APIServer).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	want := end{
		Conditions: []string{"Evicted=True PodDeleted"},
		Processed:  []string{first, second, v1alpha1.ImperativeEvictionInterceptor},
		Completed:  []string{first, second},
	}
	if diff := cmp.Diff(want, endOf(er)); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
	select {
	case <-m.Done():
		t.Error("the manager has ended")
	default:
	}
	// It still answers calls.
	later := createPod(t, builder.Pod(namespace, "db-1").Node(node).Interceptors("nobody.example.com").Obj())
	evictUntil(t, "alice", later, "waiting for interceptor")
}
