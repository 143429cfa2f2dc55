package vm

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// untyped is an object as the API serves it.
func untyped(t *testing.T, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func typedMachine(strategy kubevirtv1.EvictionStrategy, changes ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	m := &kubevirtv1.VirtualMachineInstance{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirtv1.GroupVersion.String(), Kind: kubevirtv1.VirtualMachineInstanceGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm-1", ResourceVersion: "7"},
		Status: kubevirtv1.VirtualMachineInstanceStatus{
			NodeName: "n1", Phase: kubevirtv1.Running,
			Conditions: []kubevirtv1.VirtualMachineInstanceCondition{{Type: kubevirtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}},
		},
	}
	if strategy != "" {
		m.Spec.EvictionStrategy = &strategy
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func typedPod() *corev1.Pod {
	pod := launcherPod()
	pod.Labels = map[string]string{kubevirtv1.AppLabel: "virt-launcher"}
	pod.Annotations = map[string]string{kubevirtv1.DomainAnnotation: "vm"}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(typedMachine(""), kubevirtv1.VirtualMachineInstanceGroupVersionKind)}
	return pod
}

// The presets read and write the fields that KubeVirt's own types have: a name that
// is spelled wrong would read as nothing.
func TestThePresetsFitTheTypesOfKubeVirt(t *testing.T) {
	migratable := func(status corev1.ConditionStatus) func(*kubevirtv1.VirtualMachineInstance) {
		return func(m *kubevirtv1.VirtualMachineInstance) { m.Status.Conditions[0].Status = status }
	}
	now := metav1.NewTime(epoch)
	cases := map[string]struct {
		machine *kubevirtv1.VirtualMachineInstance
		others  []runtime.Object
		want    step
	}{
		"None":                                  {machine: typedMachine(kubevirtv1.EvictionStrategyNone), want: stepPass},
		"LiveMigrate":                           {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate), want: stepMark},
		"LiveMigrate, not migratable":           {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, migratable(corev1.ConditionFalse)), want: stepRefuse},
		"G4: LiveMigrate, Unknown":              {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, migratable(corev1.ConditionUnknown)), want: stepWait},
		"LiveMigrateIfPossible":                 {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrateIfPossible), want: stepMark},
		"LiveMigrateIfPossible, not migratable": {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrateIfPossible, migratable(corev1.ConditionFalse)), want: stepPass},
		"External":                              {machine: typedMachine(kubevirtv1.EvictionStrategyExternal, migratable(corev1.ConditionFalse)), want: stepMark},
		"it has ended":                          {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) { m.Status.Phase = kubevirtv1.Succeeded }), want: stepPass},
		"it starts":                             {machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) { m.Status.NodeName = "" }), want: stepWait},
		"nobody has a strategy":                 {machine: typedMachine(""), others: []runtime.Object{typedConfig("")}, want: stepPass},
		"the cluster's strategy": {
			machine: typedMachine(""), want: stepMark,
			others: []runtime.Object{typedConfig(kubevirtv1.EvictionStrategyLiveMigrate)},
		},
		"marked": {
			machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) { m.Status.EvacuationNodeName = "n1" }),
			want:    stepFollow,
		},
		"G11: marked for another node": {
			machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) { m.Status.EvacuationNodeName = "n9" }),
			want:    stepMark,
		},
		"G10: the pod is the target": {
			machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) { m.Status.NodeName = "n2" }),
			want:    stepWait,
		},
		"it has moved": {
			machine: typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) {
				m.Status.NodeName = "n2"
				m.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
					Completed: true, SourceNode: "n1", TargetNode: "n2", StartTimestamp: &now, EndTimestamp: &now,
				}
			}),
			want: stepMoved,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{untyped(t, tc.machine)}
			for _, other := range tc.others {
				objects = append(objects, untyped(t, other))
			}
			w := newWorld(t, objects, nil)
			w.load(preset(t, "kubevirt"))
			_, _, got, err := w.store.observe(t.Context(), w.store.all()[0], viewOf(typedPod()), turn{}, false)
			if err != nil || got.Step != tc.want {
				t.Errorf("want %s, got %s (%s), %v", tc.want, got.Step, got.Why, err)
			}
		})
	}
}

func typedConfig(strategy kubevirtv1.EvictionStrategy) *kubevirtv1.KubeVirt {
	configured := &strategy
	if strategy == "" {
		configured = nil
	}
	return &kubevirtv1.KubeVirt{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirtv1.GroupVersion.String(), Kind: kubevirtv1.KubeVirtGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"},
		Spec:       kubevirtv1.KubeVirtSpec{Configuration: kubevirtv1.KubeVirtConfiguration{EvictionStrategy: configured}},
		Status:     kubevirtv1.KubeVirtStatus{Phase: kubevirtv1.KubeVirtPhaseDeployed},
	}
}

// The mark is none that KubeVirt would act upon, or discard, and is gone without a
// trace when it is taken back.
func TestTheMarkIsNotKubeVirts(t *testing.T) {
	w := newWorld(t, []runtime.Object{untyped(t, typedMachine(kubevirtv1.EvictionStrategyLiveMigrate))}, []client.Object{typedPod()})
	w.load(preset(t, "kubevirt"))
	a := w.interceptor()
	a.callers = func(context.Context, types.NamespacedName) []string { return []string{"descheduler"} }
	now := func() *kubevirtv1.VirtualMachineInstance {
		u, err := w.dynamic.Resource(kubevirtv1.GroupVersion.WithResource("virtualmachineinstances")).Namespace("ns").Get(t.Context(), "vm", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := &kubevirtv1.VirtualMachineInstance{}
		const strictly = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, m, strictly); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := a.Evacuate(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	if m := now(); m.IsMarkedForEviction() || m.Annotations["drawbridge.dev/evacuate-node"] != "n1" || m.Annotations[kubevirtv1.EvictionSourceAnnotation] != "descheduler" {
		t.Errorf("it is not marked: %q, %v", m.Status.EvacuationNodeName, m.Annotations)
	}
	if err := a.Cancel(t.Context(), target()); err != nil {
		t.Fatal(err)
	}
	if m := now(); m.IsMarkedForEviction() || len(m.Annotations) > 0 {
		t.Errorf("it is still marked: %q, %v", m.Status.EvacuationNodeName, m.Annotations)
	}
}

// KubeVirt's migrations are read as its types have them, and those that Drawbridge
// creates are valid ones.
func TestMigrationsAreKubeVirts(t *testing.T) {
	migration := func(phase kubevirtv1.VirtualMachineInstanceMigrationPhase) *kubevirtv1.VirtualMachineInstanceMigration {
		return &kubevirtv1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "m", UID: "m", CreationTimestamp: metav1.NewTime(epoch),
				Annotations: map[string]string{kubevirtv1.EvacuationMigrationAnnotation: "n1"},
			},
			Spec:   kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: "vm"},
			Status: kubevirtv1.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	m := compilePolicy(preset(t, "kubevirt")).migration
	for phase, want := range map[kubevirtv1.VirtualMachineInstanceMigrationPhase][2]bool{
		kubevirtv1.MigrationPhaseUnset: {false, false}, kubevirtv1.MigrationPending: {false, false}, kubevirtv1.MigrationRunning: {false, false},
		kubevirtv1.MigrationSucceeded: {true, false}, kubevirtv1.MigrationFailed: {true, true},
	} {
		object := migration(phase)
		got, err := m.factsOf(t.Context(), untyped(t, object))
		if err != nil || got.Workload != "vm" || !got.Ours || [2]bool{got.Finished, got.Failed} != want || got.Finished != object.IsFinal() {
			t.Errorf("phase %q: got %+v, %v", phase, got, err)
		}
	}
	template := compilePolicy(preset(t, "kubevirt")).migration.template
	rendered, err := template.Render(t.Context(), map[string]any{varWorkload: untyped(t, typedMachine("")).Object})
	if err != nil {
		t.Fatal(err)
	}
	made := &kubevirtv1.VirtualMachineInstanceMigration{}
	const strictly = true
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered.(map[string]any), made, strictly); err != nil || made.Spec.VMIName != "vm" ||
		made.Annotations[kubevirtv1.EvacuationMigrationAnnotation] != "n1" || made.GenerateName != "kubevirt-evacuation-" || made.Spec.Priority != nil {
		t.Errorf("got %+v, %v", made.Spec, err)
	}
}

// From the switch-over of a post-copy migration on, the guest's memory is on two nodes.
func TestTheSwitchOverOfAPostCopyMigration(t *testing.T) {
	cases := map[string]struct {
		state *kubevirtv1.VirtualMachineInstanceMigrationState
		want  bool
	}{
		"no migration":           {nil, false},
		"before the switch-over": {&kubevirtv1.VirtualMachineInstanceMigrationState{Mode: kubevirtv1.MigrationPreCopy, SourceNode: "n1"}, false},
		"after it":               {&kubevirtv1.VirtualMachineInstanceMigrationState{Mode: kubevirtv1.MigrationPostCopy, SourceNode: "n1"}, true},
		"that of an earlier one": {&kubevirtv1.VirtualMachineInstanceMigrationState{Mode: kubevirtv1.MigrationPostCopy, SourceNode: "n9"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			machine := typedMachine(kubevirtv1.EvictionStrategyLiveMigrate, func(m *kubevirtv1.VirtualMachineInstance) {
				m.Status.EvacuationNodeName, m.Status.MigrationState = "n1", tc.state
			})
			w := newWorld(t, []runtime.Object{untyped(t, machine)}, nil)
			w.load(preset(t, "kubevirt"))
			_, facts, _, err := w.store.observe(t.Context(), w.store.all()[0], viewOf(typedPod()), turn{}, false)
			if err != nil || facts.NoReturn != tc.want {
				t.Errorf("past the point of no return: %t, want %t, %v", facts.NoReturn, tc.want, err)
			}
		})
	}
}
