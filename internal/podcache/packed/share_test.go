package packed_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
)

// member is a pod of a ReplicaSet, made anew each time as a decoder does.
func member(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name,
			Labels:          map[string]string{"app": "web", "tier": "front"},
			Annotations:     map[string]string{"checksum": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("node-", 1),
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "kube-api-access-" + name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: name}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func shared(t *testing.T, s *packed.Sharing, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	obj, err := s.Transform(pod)
	if err != nil {
		t.Fatal(err)
	}
	return packed.Of(obj)
}

// alike are the parts that two pods have in common in memory.
func alike(a, b *corev1.Pod) []string {
	var same []string
	for name, parts := range map[string][2]any{
		"labels":      {a.Labels, b.Labels},
		"annotations": {a.Annotations, b.Annotations},
		"owners":      {a.OwnerReferences, b.OwnerReferences},
		"volumes":     {a.Spec.Volumes, b.Spec.Volumes},
	} {
		if reflect.ValueOf(parts[0]).Pointer() == reflect.ValueOf(parts[1]).Pointer() {
			same = append(same, name)
		}
	}
	return same
}

func TestSharingChangesNothing(t *testing.T) {
	s := packed.NewSharing()
	pods := []*corev1.Pod{{}, member("a"), member("b")}
	var scratch packed.Scratch
	for range 200 {
		pods = append(pods, randomPod(t))
	}
	for _, pod := range pods {
		before := pod.DeepCopy()
		want, err := podcache.Transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		got := shared(t, s, pod)
		if diff := cmp.Diff(want, any(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pod.Name, diff)
		}
		// Nothing may be left of one that was there before.
		used := member("used")
		obj, err := s.Transform(pod)
		if err != nil || !packed.Into(obj, used) {
			t.Fatal(obj, err)
		}
		if diff := cmp.Diff(got, used); diff != "" {
			t.Errorf("into another pod (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(got, scratch.Of(obj), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after another pod (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("the informer's object was written to (-before +after):\n%s", diff)
		}
	}
	other := &corev1.Node{}
	if got, err := s.Transform(other); got != any(other) || err != nil {
		t.Errorf("what is no pod came back as %v, %v", got, err)
	}
}

func TestPodsOfOneOwnerShareWhatTheyHaveAlike(t *testing.T) {
	cases := map[string]struct {
		change func(*corev1.Pod)
		apart  string
	}{
		"another label":                  {func(p *corev1.Pod) { p.Labels["tier"] = "back" }, "labels"},
		"key and value with another cut": {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "tierf": "ront"} }, "labels"},
		"another annotation":             {func(p *corev1.Pod) { p.Annotations["checksum"] = "2" }, "annotations"},
		"another owner":                  {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "v" }, "owners"},
		"an owner that does not control": {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = ptr.To(false) }, "owners"},
		"an owner that says nothing":     {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, "owners"},
		"an owner that may block":        {func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true) }, "owners"},
		"another volume":                 {func(p *corev1.Pod) { p.Spec.Volumes[0].Name = "log" }, "volumes"},
		"a volume of another kind": {func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
		}, "volumes"},
		"a projected volume of its own": {func(p *corev1.Pod) { p.Spec.Volumes[1].Name = "tokens" }, "volumes"},
		"another namespace":             {func(p *corev1.Pod) { p.Namespace = "depot" }, "volumes"},
		"another priority":              {func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1) }, "volumes"},
		"another priority class":        {func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }, "volumes"},
		"another account":               {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "web" }, "volumes"},
		"another scheduler":             {func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }, "volumes"},
		"another restart policy":        {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }, "volumes"},
		"another grace period":          {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) }, "volumes"},
		"a group":                       {func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }, "volumes"},
		"responders to evictions":       {func(p *corev1.Pod) { p.Spec.EvictionResponders = responders("a.x/b", 1000) }, "volumes"},
		"a volume of an unknown kind":   {func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{} }, "volumes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := packed.NewSharing()
			a, b := shared(t, s, member("a")), shared(t, s, member("b"))
			if got := alike(a, b); len(got) != 4 {
				t.Errorf("two pods of one owner share only %v", got)
			}
			pod := member("c", tc.change)
			want, err := podcache.Transform(pod)
			if err != nil {
				t.Fatal(err)
			}
			c := shared(t, s, pod)
			if diff := cmp.Diff(want, any(c)); diff != "" {
				t.Errorf("the pod has changed (-want +got):\n%s", diff)
			}
			for _, part := range alike(a, c) {
				if part == tc.apart {
					t.Errorf("%s are shared with a pod that has others", part)
				}
			}
		})
	}
}

func responders(name string, priority int32) []corev1.EvictionResponder {
	return []corev1.EvictionResponder{{Name: name, Priority: &priority}}
}

// The responders of a pod never change, so pods of one owner nearly always have the same.
func TestRespondersToEvictionsAreSharedIfAlike(t *testing.T) {
	of := func(all []corev1.EvictionResponder) *corev1.Pod {
		return member("a", func(p *corev1.Pod) { p.Spec.EvictionResponders = all })
	}
	cases := map[string]struct {
		responders []corev1.EvictionResponder
		shared     bool
	}{
		"the same":         {responders("a.x/b", 1000), true},
		"another name":     {responders("a.x/c", 1000), false},
		"another priority": {responders("a.x/b", 1001), false},
		"no priority":      {[]corev1.EvictionResponder{{Name: "a.x/b"}}, false},
		"one more":         {append(responders("a.x/b", 1000), responders("b.x/b", 1000)...), false},
		"none at all":      {nil, false},
		"an empty list":    {[]corev1.EvictionResponder{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := packed.NewSharing()
			first := shared(t, s, of(responders("a.x/b", 1000)))
			got := shared(t, s, of(tc.responders))
			if diff := cmp.Diff(tc.responders, got.Spec.EvictionResponders, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("responders (-want +got):\n%s", diff)
			}
			if is := len(got.Spec.EvictionResponders) > 0 && &got.Spec.EvictionResponders[0] == &first.Spec.EvictionResponders[0]; is != tc.shared {
				t.Errorf("shared: %t, want %t", is, tc.shared)
			}
		})
	}
}

// random fills what Kubernetes itself has its own formats for.
var random = randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).Funcs(
	func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0) },
	func(q *resource.Quantity, c randfill.Continue) {
		*q = *resource.NewQuantity(c.Int63n(1<<32), resource.BinarySI)
	},
	func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31()) },
	func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte("{}")) },
)

// randomPod has any of the fields that Kubernetes knows, and times of whole seconds, as those
// of the API server.
func randomPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	random.Fill(pod)
	pod.TypeMeta = metav1.TypeMeta{} // An informer's objects have none.
	encoded, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	*pod = corev1.Pod{}
	if err := json.Unmarshal(encoded, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestOtherObjectsAreNoPods(t *testing.T) {
	pod := member("a")
	if packed.Of(pod) != pod || (&packed.Scratch{}).Of(pod) != pod {
		t.Error("a pod is not itself")
	}
	got := &corev1.Pod{}
	if !packed.Into(pod, got) || cmp.Diff(pod, got) != "" {
		t.Errorf("a pod into another one is %v", got)
	}
	for _, obj := range []any{nil, &corev1.Node{}, *pod} {
		if packed.Of(obj) != nil || packed.Into(obj, got) || (&packed.Scratch{}).Of(obj) != nil {
			t.Errorf("a %T is a pod", obj)
		}
		if key, ok := packed.Key(obj); ok {
			t.Errorf("a %T is pod %s", obj, key)
		}
	}
}

// Informers ask a packed pod for its name and its version.
func TestAPackedPodIsAnObject(t *testing.T) {
	pod := member("a", func(p *corev1.Pod) { p.ResourceVersion = "7" })
	small, err := packed.NewSharing().Transform(pod)
	if err != nil {
		t.Fatal(err)
	}
	accessor, err := meta.Accessor(small)
	if err != nil {
		t.Fatal(err)
	}
	if accessor.GetName() != "a" || accessor.GetNamespace() != "shop" || accessor.GetResourceVersion() != "7" {
		t.Errorf("its metadata is %v", accessor)
	}
	for _, obj := range []any{pod, small} {
		if key, ok := packed.Key(obj); !ok || key != client.ObjectKeyFromObject(pod) {
			t.Errorf("a %T is named %s", obj, key)
		}
	}
}

// Every event of every pod is transformed.
func TestTheTransformAllocatesThePodAndItsConditions(t *testing.T) {
	s, pod := packed.NewSharing(), member("a")
	shared(t, s, pod)
	allocation.AtMost(t, allocation.Cost{Allocs: 2, Bytes: 185}, func() {
		if _, err := s.Transform(pod); err != nil {
			t.Fatal(err)
		}
	})
}

// Some walk over all pods.
func TestAScratchAllocatesNothing(t *testing.T) {
	obj, err := packed.NewSharing().Transform(member("a"))
	if err != nil {
		t.Fatal(err)
	}
	var scratch packed.Scratch
	allocation.AtMost(t, allocation.Cost{}, func() { scratch.Of(obj) })
}

func BenchmarkSharing(b *testing.B) {
	for name, transform := range map[string]func(any) (any, error){"transform": podcache.Transform, "sharing": packed.NewSharing().Transform} {
		b.Run(name, func(b *testing.B) {
			pod := member("a")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transform(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
