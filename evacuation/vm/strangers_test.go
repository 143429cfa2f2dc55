package vm

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// staticResolver is a resolver for which every pod has the same interceptors.
type staticResolver []string

func (r staticResolver) Resolve(*corev1.Pod) ([]string, error) { return r, nil }

// lagging is a resolver that does not know everybody yet.
type lagging struct{}

func (lagging) Resolve(*corev1.Pod) ([]string, error) { return nil, registration.ErrNotSynced }

// A machine is held while its interceptor may be missing among those who intercept it.
func TestAPodIsHeldWhileAnInterceptorMayBeMissing(t *testing.T) {
	pod := launcherPod()
	w := newWorld(t, nil, []client.Object{pod})
	w.store.Resolver = lagging{}
	w.load(strangersPolicy("'None'"))
	if reason, held := w.store.Held(pod); !held || reason != "who intercepts the pod is not known yet" {
		t.Errorf("held: got %t (%q), want it, because who intercepts the pod is not known yet", held, reason)
	}
}

// strangersPolicy covers all pods, is the first of all, and has another interceptor.
func strangersPolicy(strategy string) *v1alpha1.EvacuationPolicy {
	p := &v1alpha1.EvacuationPolicy{Spec: v1alpha1.EvacuationPolicySpec{
		Interceptor: "stranger.example.com", Priority: 100, Strategy: strategy, Evacuating: "false",
	}}
	p.Name = "a-stranger"
	return p
}

// An expression that fails holds the pods whose eviction waits for the policy's
// interceptor, and nobody else's.
func TestAFailingPolicyHoldsOnlyPodsOfItsInterceptor(t *testing.T) {
	const stranger, other = "stranger.example.com", "other.example.com"
	failing := strangersPolicy("pod.metadata.annotations['nobody-has-this']")
	failingCondition := strangersPolicy("'None'")
	failingCondition.Spec.Pods.MatchConditions = []v1alpha1.MatchCondition{{Name: "x", Expression: "pod.metadata.annotations['nobody-has-this'] == 'x'"}}
	refused := strangersPolicy("nonsense(")
	broken := strangersPolicy("'None'")
	broken.Spec.Pods.MatchConditions = []v1alpha1.MatchCondition{{Name: "x", Expression: "nonsense("}}
	for title, tc := range map[string]struct {
		policy    *v1alpha1.EvacuationPolicy
		plan, now []string
		held      bool
	}{
		"strategy, the interceptor is in the plan":          {failing, []string{stranger}, []string{stranger}, true},
		"strategy, it is in the plan and selects no more":   {failing, []string{stranger}, nil, true},
		"strategy, it was not there when the plan was made": {failing, []string{other}, []string{other, stranger}, false},
		"strategy, it is not the pod's":                     {failing, []string{other}, []string{other}, false},
		"strategy, there is no plan":                        {failing, nil, []string{stranger}, true},
		"strategy, nobody intercepts the pod":               {failing, nil, nil, false},
		"match condition, it is in the plan":                {failingCondition, []string{stranger}, []string{stranger}, true},
		"match condition, it is not the pod's":              {failingCondition, []string{other}, []string{other}, false},
		"refused, it is in the plan":                        {refused, []string{stranger}, []string{stranger}, true},
		"refused, it is not the pod's":                      {refused, []string{other}, []string{other}, false},
		"broken, it is in the plan":                         {broken, []string{stranger}, []string{stranger}, true},
		"broken, it is not the pod's":                       {broken, []string{other}, []string{other}, false},
	} {
		t.Run(title, func(t *testing.T) {
			pod := launcherPod()
			objects := []client.Object{pod}
			if tc.plan != nil {
				er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("alice.example.com").Obj()
				for _, name := range append(slices.Clone(tc.plan), v1alpha1.ImperativeEvictionInterceptor) {
					er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
				}
				objects = append(objects, er)
			}
			w := newWorld(t, nil, objects)
			w.store.Resolver = staticResolver(tc.now)
			w.load(tc.policy)
			reason, held := w.store.Held(pod)
			if held != tc.held {
				t.Errorf("held: want %t, got %t (%q)", tc.held, held, reason)
			}
			if held && !strings.Contains(reason, "EvacuationPolicy a-stranger") {
				t.Errorf("the reason does not name the policy: %q", reason)
			}
		})
	}
}

// Whoever may write policies cannot let the pod of a machine go by one that covers it.
func TestAStrangersPolicyCannotDisarmAMachine(t *testing.T) {
	const kubevirt = "kubevirt.drawbridge.dev"
	for title, strangers := range map[string]*v1alpha1.EvacuationPolicy{
		"it says that there is nothing to do": strangersPolicy("'None'"),
		"it fails":                            strangersPolicy("pod.metadata.annotations['nobody-has-this']"),
		"it is refused":                       strangersPolicy("nonsense("),
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
			w.load(strangers, preset(t, "kubevirt"))
			got, err := w.store.Preflight(kubevirt).Preflight(t.Context(), launcherPod())
			if err != nil || got.Outcome != preflight.Proceed {
				t.Errorf("the webhook: want Proceed, got %s, %v", got.Outcome, err)
			}
			if reason, held := w.store.Held(launcherPod()); !held || !strings.Contains(reason, "EvacuationPolicy kubevirt") {
				t.Errorf("the guard: want it held by the policy kubevirt, got %t, %q", held, reason)
			}
			if progress, err := w.interceptor().Evacuate(t.Context(), target()); err != nil || progress.Done || len(w.writes()) != 1 {
				t.Errorf("the interceptor: want a mark, got %+v, %v, writes %q", progress, err, w.writes())
			}
		})
	}
}

// An interceptor whose registration selects more pods than its policies cover holds
// the rest: nobody has said that they may go.
func TestAPodOfAnInterceptorThatNoneOfItsPoliciesCoversIsHeld(t *testing.T) {
	w := newWorld(t, nil, []client.Object{launcherPod()})
	w.load(preset(t, "kubevirt-hotplug"), strangersPolicy("'None'"))
	reason, held := w.store.Held(launcherPod())
	if want := "no EvacuationPolicy of interceptor kubevirt.drawbridge.dev covers the pod"; !held || reason != want {
		t.Errorf("want it held (%q), got %t, %q", want, held, reason)
	}
}
