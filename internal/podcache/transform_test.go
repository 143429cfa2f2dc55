package podcache_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

var (
	born  = metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	dying = metav1.NewTime(born.Add(time.Hour))
)

// fullMeta has every field of the metadata set, keptMeta what stays of it.
func fullMeta() metav1.ObjectMeta {
	m := keptMeta()
	m.GenerateName = "db-"
	m.Generation = 7
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate}}
	return m
}

func keptMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:                       "db-0",
		Namespace:                  "shop",
		UID:                        "6f9a",
		ResourceVersion:            "42",
		Labels:                     map[string]string{"app": "db"},
		Annotations:                map[string]string{"drawbridge.dev/interceptors": "a.example.com"},
		OwnerReferences:            []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}},
		Finalizers:                 []string{"example.com/keep"},
		CreationTimestamp:          born,
		DeletionTimestamp:          &dying,
		DeletionGracePeriodSeconds: ptr.To[int64](30),
	}
}

func TestTransform(t *testing.T) {
	conditions := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: born, Message: "m"}}
	cases := map[string]struct{ pod, want *corev1.Pod }{
		"an empty pod stays empty": {pod: &corev1.Pod{}, want: &corev1.Pod{}},
		"what is promised stays and the rest goes": {
			pod: &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
				ObjectMeta: fullMeta(),
				Spec: corev1.PodSpec{
					NodeName:           "n1",
					Priority:           ptr.To[int32](1000),
					PriorityClassName:  "high",
					ServiceAccountName: "db",
					SchedulerName:      "default-scheduler",
					RestartPolicy:      corev1.RestartPolicyAlways,
					SchedulingGroup:    &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")},
					EvictionResponders: []corev1.EvictionResponder{{Name: "acme.example.com/migrate", Priority: ptr.To[int32](10000)}},
					Volumes: []corev1.Volume{
						{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
						{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0", ReadOnly: true}}},
						{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}},
					},
					Containers:                    []corev1.Container{{Name: "db", Image: "db:1", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}},
					InitContainers:                []corev1.Container{{Name: "init"}},
					EphemeralContainers:           []corev1.EphemeralContainer{{}},
					NodeSelector:                  map[string]string{"disk": "ssd"},
					Tolerations:                   []corev1.Toleration{{Key: "x"}},
					Affinity:                      &corev1.Affinity{},
					SecurityContext:               &corev1.PodSecurityContext{},
					TerminationGracePeriodSeconds: ptr.To[int64](30),
					HostNetwork:                   true,
				},
				Status: corev1.PodStatus{
					Phase:             corev1.PodRunning,
					Conditions:        conditions,
					PodIP:             "10.0.0.1",
					HostIP:            "10.0.0.2",
					Message:           "m",
					ContainerStatuses: []corev1.ContainerStatus{{Name: "db"}},
					StartTime:         &born,
				},
			},
			want: &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
				ObjectMeta: keptMeta(),
				Spec: corev1.PodSpec{
					NodeName:           "n1",
					Priority:           ptr.To[int32](1000),
					PriorityClassName:  "high",
					ServiceAccountName: "db",
					SchedulerName:      "default-scheduler",
					RestartPolicy:      corev1.RestartPolicyAlways,
					SchedulingGroup:    &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")},
					EvictionResponders: []corev1.EvictionResponder{{Name: "acme.example.com/migrate", Priority: ptr.To[int32](10000)}},

					TerminationGracePeriodSeconds: ptr.To[int64](30),
					Volumes: []corev1.Volume{
						{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
						{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
					},
				},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: conditions},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := tc.pod.DeepCopy()
			got, err := podcache.Transform(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(given, tc.pod); diff != "" {
				t.Errorf("the given pod was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTransformNode(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: fullMeta(),
		Spec: corev1.NodeSpec{
			PodCIDR:       "10.0.0.0/24",
			ProviderID:    "cloud://1",
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: "DrainScheduled", Status: corev1.ConditionTrue, LastHeartbeatTime: born, LastTransitionTime: born, Message: "m"}},
			Images:     []corev1.ContainerImage{{Names: []string{"db:1"}}},
			Addresses:  []corev1.NodeAddress{{Address: "10.0.0.2"}},
			Capacity:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")},
		},
	}
	want := &corev1.Node{
		ObjectMeta: keptMeta(),
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "DrainScheduled", Status: corev1.ConditionTrue, LastTransitionTime: born}}},
	}
	got, err := podcache.TransformNode(node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestForeignObjectsPass(t *testing.T) {
	for name, transform := range map[string]func(any) (any, error){"pods": podcache.Transform, "nodes": podcache.TransformNode} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{}
			got, err := transform(secret)
			if err != nil || got != any(secret) {
				t.Errorf("got %v, %v, want the object itself", got, err)
			}
		})
	}
}
