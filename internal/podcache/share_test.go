package podcache_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
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

func shared(t *testing.T, s *podcache.Sharing, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	obj, err := s.Transform(pod)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.Pod)
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
	s := podcache.NewSharing()
	for _, pod := range []*corev1.Pod{{}, member("a"), member("b"), {ObjectMeta: fullMeta()}} {
		before := pod.DeepCopy()
		want, err := podcache.Transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, any(shared(t, s, pod))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pod.Name, diff)
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
		"a volume of an unknown kind":   {func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{} }, "volumes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := podcache.NewSharing()
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

// Every event of every pod is transformed.
func TestTheTransformAllocatesThePodAndItsConditions(t *testing.T) {
	s, pod := podcache.NewSharing(), member("a")
	shared(t, s, pod)
	got := testing.AllocsPerRun(100, func() {
		if _, err := s.Transform(pod); err != nil {
			t.Fatal(err)
		}
	})
	if got > 2 {
		t.Errorf("%v allocations for a pod like others, want 2", got)
	}
}

func BenchmarkSharing(b *testing.B) {
	for name, transform := range map[string]func(any) (any, error){"transform": podcache.Transform, "sharing": podcache.NewSharing().Transform} {
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
