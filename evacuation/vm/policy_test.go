package vm

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

const chart = "../../charts/drawbridge"

// preset reads a policy of the chart.
func preset(t *testing.T, name string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	p, err := install.PresetPolicy(chart, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// simple is a policy that is well formed.
func simple(changes ...func(*v1alpha1.EvacuationPolicySpec)) *v1alpha1.EvacuationPolicy {
	p := &v1alpha1.EvacuationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "simple", UID: "policy", Generation: 1},
		Spec: v1alpha1.EvacuationPolicySpec{
			Interceptor: "vm.example.com",
			Workload:    &v1alpha1.WorkloadReference{APIVersion: "example.com/v1", Kind: "Machine"},
			Strategy:    "'External'",
			Evacuating:  "workload.spec.leave == true",
		},
	}
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

func TestPresetsCompile(t *testing.T) {
	policies, err := install.PresetPolicies(chart)
	if err != nil || len(policies) == 0 {
		t.Fatalf("there are no presets: %v", err)
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			if p := compilePolicy(policy); p.refused != nil {
				t.Errorf("refused: %v", p.refused)
			}
		})
	}
}

// patchOf is a patch of one operation.
func patchOf(subresource, op, path, value string) *v1alpha1.WorkloadPatch {
	return &v1alpha1.WorkloadPatch{Subresource: subresource, Operations: []v1alpha1.PatchOperation{{Op: op, Path: path, Value: value}}}
}

// Each changes one field of a policy.
func withStrategy(expression string) func(*v1alpha1.EvacuationPolicySpec) {
	return func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = expression }
}

func withDone(expression string) func(*v1alpha1.EvacuationPolicySpec) {
	return func(s *v1alpha1.EvacuationPolicySpec) { s.Done = expression }
}

func withWorkload(apiVersion, kind, name string) func(*v1alpha1.EvacuationPolicySpec) {
	return func(s *v1alpha1.EvacuationPolicySpec) {
		s.Workload = &v1alpha1.WorkloadReference{APIVersion: apiVersion, Kind: kind, Name: name}
	}
}

func withMark(patch *v1alpha1.WorkloadPatch) func(*v1alpha1.EvacuationPolicySpec) {
	return func(s *v1alpha1.EvacuationPolicySpec) { s.Mark = patch }
}

func withTemplate(template string) func(*v1alpha1.EvacuationPolicySpec) {
	return func(s *v1alpha1.EvacuationPolicySpec) {
		s.Migration = &v1alpha1.MigrationSpec{
			APIVersion: "example.com/v1", Kind: "Migration", WorkloadName: "''", Finished: "true", Failed: "false",
			Template: &runtime.RawExtension{Raw: []byte(template)},
		}
	}
}

// checkRefused wants a text in what a changed policy is refused for.
func checkRefused(t *testing.T, change func(*v1alpha1.EvacuationPolicySpec), want string, broken bool) {
	t.Helper()
	p := compilePolicy(simple(change))
	if p.refused == nil || !strings.Contains(p.refused.Error(), want) {
		t.Errorf("want %q, got %v", want, p.refused)
	}
	if p.broken != broken {
		t.Errorf("broken: want %t, got %t", broken, p.broken)
	}
}

func TestWhatIsRefused(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.EvacuationPolicySpec)
		want   string
		broken bool
	}{
		"an expression that does not compile": {withStrategy("workload.spec."), "spec.strategy does not compile", false},
		"the wrong type":                      {func(s *v1alpha1.EvacuationPolicySpec) { s.Evacuating = "'yes'" }, "spec.evacuating must be of type bool, but is string", false},
		"a field of the pod that is not kept": {func(s *v1alpha1.EvacuationPolicySpec) { s.Wait = "pod.spec.hostname" }, "spec.wait does not compile: line 1, column 9: undefined field 'hostname'", false},
		"a variable that is not there":        {withDone("'a' in request.requesters"), "undeclared reference to 'request'", false},
		"a patch of the UID":                  {withMark(patchOf("", "add", "/metadata/uid", "''")), "spec.mark.operations[0].path: /metadata/uid cannot be patched", false},
		"a pod's image": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Workload, s.Mark = nil, patchOf("", "replace", "/spec/containers/0/image", "'a'")
		}, "spec.mark.operations[0].path: /spec/containers/0/image cannot be patched, of a pod only labels and annotations can", false},
		"a pod's owners, to take the mark back": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Workload, s.Unmark = nil, patchOf("", "add", "/metadata/ownerReferences/-", "'a'")
		}, "spec.unmark.operations[0].path: /metadata/ownerReferences/- cannot be patched", false},
		"another pod's image, by its name": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Workload = &v1alpha1.WorkloadReference{APIVersion: "v1", Kind: "Pod", Name: "pod.metadata.labels['other']"}
			s.Mark = patchOf("", "replace", "/spec/containers/0/image", "'a'")
		}, "spec.mark.operations[0].path: /spec/containers/0/image cannot be patched", false},
		"a pod's status": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Workload, s.Mark = nil, patchOf("status", "add", "/metadata/labels/a", "'a'")
		}, "spec.mark.subresource: the subresource status of a pod cannot be patched", false},
		"a node": {withWorkload("v1", "Node", "pod.spec.nodeName"), "spec.workload: v1 Node cannot be a workload", false},
		"a request for another pod's eviction": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Migration = &v1alpha1.MigrationSpec{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionRequest", WorkloadName: "''", Finished: "true", Failed: "false", Ours: "true"}
		}, "spec.migration: drawbridge.dev/v1alpha1 EvictionRequest cannot stand for a migration", false},
		"the name of the surge":            {func(s *v1alpha1.EvacuationPolicySpec) { s.Interceptor = "surge.drawbridge.dev" }, "spec.interceptor: surge.drawbridge.dev is Drawbridge's own", false},
		"a template that does not compile": {withTemplate(`{"spec":{"list":[{"vm":"${workload.}"}]}}`), "spec.migration.template.spec.list[0].vm does not compile", false},
		"the pod itself, by a name":        {withWorkload("v1", "Pod", ""), "spec.workload.name: which pod?", false},
		"a selector that cannot be read": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Pods.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}, "spec.pods.selector cannot be read", true},
		"a condition of the wrong type": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Pods.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "pod.metadata.name"}}
		}, "spec.pods.matchConditions[0] must be of type bool", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, tc.change, tc.want, tc.broken)
		})
	}
}

func TestWhatFailsAtRunTime(t *testing.T) {
	many := make([]any, 2000)
	for i := range many {
		many[i] = "x"
	}
	cases := map[string]struct {
		expression string
		want       string
	}{
		"a missing field":   {"workload.spec.nothing", "spec.test: no such key: nothing"},
		"too costly":        {"workload.spec.many.all(a, workload.spec.many.all(b, a == b)) ? '' : ''", "spec.test: operation cancelled: actual cost limit exceeded"},
		"the wrong type":    {"workload.spec.number", "spec.test: the result must be of type string, but is int"},
		"no such operation": {"workload.spec.number + 'a'", "spec.test: no such overload"},
	}
	vars := map[string]any{varPod: map[string]any{}, varConfig: map[string]any{}, varWorkload: map[string]any{
		"spec": map[string]any{"many": many, "number": int64(1)},
	}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			compiled, err := compile("spec.test", tc.expression, workloadScope)
			if err != nil {
				t.Fatal(err)
			}
			_, err = compiled.Text(t.Context(), vars)
			var failure *cel.EvaluationError
			if !errors.As(err, &failure) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want %q, got %v", tc.want, err)
			}
		})
	}
}

func TestOnlyWhatIsReadIsKept(t *testing.T) {
	cases := map[string]struct {
		expressions []string
		want        string
	}{
		"fields and their parents": {
			expressions: []string{"workload.spec.a.b == 'x'", "has(workload.spec.c)"},
			want:        "spec{a{b},c}",
		},
		"optional fields and keys": {
			expressions: []string{"workload.?status.?node.orValue('') == workload.metadata.annotations[?'a/b'].orValue('')", "workload.spec['x'] == 1"},
			want:        "metadata{annotations{a/b},creationTimestamp,deletionTimestamp,labels,name,namespace,resourceVersion,uid},spec{x},status{node}",
		},
		"all of a list": {
			expressions: []string{"workload.status.conditions.exists(c, c.type == 'A')", "workload.status.list[0].x == 1"},
			want:        "status{conditions,list}",
		},
		"a parent that is read as a whole": {
			expressions: []string{"workload.spec.a.b == 'x'", "size(workload.spec) > 0"},
			want:        "spec",
		},
		"everything": {expressions: []string{"workload == pod"}, want: "*"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var compiled []cel.Expression
			for _, source := range tc.expressions {
				e, err := compile("spec.test", source, scope{varWorkload, varConfig})
				if err != nil && name == "everything" {
					e, err = compile("spec.test", "workload == config", scope{varWorkload, varConfig})
				}
				if err != nil {
					t.Fatal(err)
				}
				compiled = append(compiled, e)
			}
			got := fieldsRead(varWorkload, compiled).String()
			if !strings.Contains(got, tc.want) || (tc.want == "spec" && strings.Contains(got, "spec{")) {
				t.Errorf("want %s in it, got %s", tc.want, got)
			}
		})
	}
}

// The informer of the KubeVirt preset drops what makes a machine's object big.
func TestTheKubeVirtPresetKeepsLittle(t *testing.T) {
	p := compilePolicy(preset(t, "kubevirt"))
	machine := map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "vm", "managedFields": []any{"x"}, "annotations": map[string]any{"kubevirt.io/eviction-source": "descheduler"}},
		"spec":     map[string]any{"evictionStrategy": "LiveMigrate", "domain": map[string]any{"cpu": "x"}, "volumes": []any{"x"}},
		"status":   map[string]any{"nodeName": "n1", "interfaces": []any{"x"}, "evacuationNodeName": "n1", "conditions": []any{}},
	}
	want := map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "vm", "annotations": map[string]any{"kubevirt.io/eviction-source": "descheduler"}},
		"spec":     map[string]any{"evictionStrategy": "LiveMigrate"},
		"status":   map[string]any{"nodeName": "n1", "evacuationNodeName": "n1", "conditions": []any{}},
	}
	if diff := cmp.Diff(want, prune(machine, p.workloadFields)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestWhatAnExpressionIsToldOfTheDeadline(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	hurried, err := compile("spec.test", "request.deadline != '' && timestamp(request.deadline) - timestamp('2026-05-04T11:00:00Z') < duration('2h')", writeScope)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		deadline time.Time
		want     bool
	}{
		"there is none":          {time.Time{}, false},
		"one that is soon":       {noon, true},
		"one that is far":        {noon.Add(time.Hour), false},
		"one in another zone":    {noon.In(time.FixedZone("CET", 3600)), true},
		"one that is long since": {noon.Add(-24 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			vars := map[string]any{varPod: map[string]any{}, varWorkload: map[string]any{}, varConfig: map[string]any{}}
			vars[varRequest] = requestVar(types.NamespacedName{}, nil, nil, tc.deadline)
			if got, err := hurried.Bool(t.Context(), vars, false); err != nil || got != tc.want {
				t.Errorf("it is hurried: %t (error %v), want %t", got, err, tc.want)
			}
		})
	}
}

// The mark, with the tests that KubeVirt's own lacks (kubevirt.md, section 5).
func TestMarkAndUnmark(t *testing.T) {
	vars := func(callers []string, metadata map[string]any) map[string]any {
		return map[string]any{
			varPod:      map[string]any{"spec": map[string]any{"nodeName": "n1"}},
			varWorkload: map[string]any{"metadata": metadata, "status": map[string]any{"nodeName": "n1"}},
			varConfig:   map[string]any{},
			varRequest:  map[string]any{"callers": callers, "requesters": []string{}},
		}
	}
	none := map[string]any{}
	annotated := map[string]any{"annotations": map[string]any{"kubevirt.io/eviction-source": "descheduler"}}
	marked := map[string]any{"annotations": map[string]any{"drawbridge.dev/evacuate-node": "n1"}}
	both := map[string]any{"annotations": map[string]any{"drawbridge.dev/evacuate-node": "n1", "kubevirt.io/eviction-source": "descheduler"}}
	cases := map[string]struct {
		preset  string
		unmark  bool
		callers []string
		meta    map[string]any
		want    string
	}{
		"G2: KubeVirt, with tests of UID and node": {
			preset: "kubevirt", callers: []string{"kubectl"}, meta: none,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/status/nodeName","value":"n1"},` +
				`{"op":"test","path":"/metadata/annotations","value":null},{"op":"add","path":"/metadata/annotations","value":{"drawbridge.dev/evacuate-node":"n1"}}]`,
		},
		"for the descheduler": {
			preset: "kubevirt", callers: []string{"descheduler"}, meta: annotated,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/status/nodeName","value":"n1"},` +
				`{"op":"add","path":"/metadata/annotations/drawbridge.dev~1evacuate-node","value":"n1"},` +
				`{"op":"add","path":"/metadata/annotations/kubevirt.io~1eviction-source","value":"descheduler"}]`,
		},
		"G5: for the descheduler, without annotations": {
			preset: "kubevirt", callers: []string{"descheduler"}, meta: none,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/status/nodeName","value":"n1"},` +
				`{"op":"test","path":"/metadata/annotations","value":null},{"op":"add","path":"/metadata/annotations","value":{"drawbridge.dev/evacuate-node":"n1"}},` +
				`{"op":"add","path":"/metadata/annotations/kubevirt.io~1eviction-source","value":"descheduler"}]`,
		},
		"for the descheduler and a person, it is urgent": {
			preset: "kubevirt", callers: []string{"descheduler", "kubectl"}, meta: annotated,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/status/nodeName","value":"n1"},` +
				`{"op":"add","path":"/metadata/annotations/drawbridge.dev~1evacuate-node","value":"n1"}]`,
		},
		"unmarked": {
			preset: "kubevirt", unmark: true, meta: marked,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/metadata/annotations/drawbridge.dev~1evacuate-node","value":"n1"},{"op":"remove","path":"/metadata/annotations/drawbridge.dev~1evacuate-node"}]`,
		},
		"G7: unmarked, with the source of the eviction": {
			preset: "kubevirt", unmark: true, meta: both,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"test","path":"/metadata/annotations/drawbridge.dev~1evacuate-node","value":"n1"},{"op":"remove","path":"/metadata/annotations/drawbridge.dev~1evacuate-node"},` +
				`{"op":"remove","path":"/metadata/annotations/kubevirt.io~1eviction-source"}]`,
		},
		"G7: marked by KubeVirt alone, whose subresource leaves the source": {
			preset: "kubevirt", unmark: true, meta: annotated,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},` +
				`{"op":"remove","path":"/metadata/annotations/kubevirt.io~1eviction-source"}]`,
		},
		"there is nothing to take back": {preset: "kubevirt", unmark: true, meta: none},
		"Strimzi": {
			preset: "strimzi", meta: annotated,
			want: `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/metadata/annotations/strimzi.io~1manual-rolling-update","value":"true"}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := compilePolicy(preset(t, tc.preset))
			by := p.mark
			if tc.unmark {
				by = p.unmark
			}
			got, err := by.render(t.Context(), "u", vars(tc.callers, tc.meta))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplate(t *testing.T) {
	c := compiling{}
	made := c.template("t", map[string]any{
		"spec": map[string]any{
			"vm": "${workload.metadata.name}", "node": "${pod.spec.nodeName}", "literal": "$x", "number": 3.0, "nothing": nil,
			"list": []any{"${1 + 1}", true}, "map": "${{'a': workload.metadata.name}}",
		},
	})
	if err := errors.Join(c.errs...); err != nil {
		t.Fatal(err)
	}
	got, err := made.Render(t.Context(), map[string]any{
		varPod: map[string]any{"spec": map[string]any{"nodeName": "n1"}}, varWorkload: map[string]any{"metadata": map[string]any{"name": "vm"}},
		varConfig: map[string]any{}, varRequest: map[string]any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"list":[2,true],"literal":"$x","map":{"a":"vm"},"node":"n1","nothing":null,"number":3,"vm":"vm"}}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func TestCovers(t *testing.T) {
	launcher := func(labels, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: labels, Annotations: annotations}}
	}
	domain := map[string]string{"kubevirt.io/domain": "vm"}
	cases := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a launcher":                              {launcher(map[string]string{"kubevirt.io": "virt-launcher"}, domain), true},
		"a launcher without a machine":            {launcher(map[string]string{"kubevirt.io": "virt-launcher"}, nil), false},
		"a pod that is only called virt-launcher": {launcher(nil, domain), false},
	}
	p := compilePolicy(preset(t, "kubevirt"))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := p.covers(context.Background(), viewOf(tc.pod))
			if err != nil || got != tc.want {
				t.Errorf("want %t, got %t, %v", tc.want, got, err)
			}
		})
	}
}
