package vm

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// migrationOf is a migration with a template.
func migrationOf(template string) *v1alpha1.MigrationSpec {
	return &v1alpha1.MigrationSpec{
		APIVersion: "example.com/v1", Kind: "Migration", WorkloadName: "''", Finished: "true", Failed: "false",
		Template: &runtime.RawExtension{Raw: []byte(template)},
	}
}

// What compiles, or nearly, and cannot be meant. It is said what to write instead.
func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.EvacuationPolicySpec)
		want   string
	}{
		"an expression that is not closed, in a template": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Migration = migrationOf(`{"spec":{"vm":"${workload.metadata.name"}}`)
			},
			want: `spec.migration.template.spec.vm: "${workload.metadata.name" is not closed: an expression ends with }`,
		},
		"an expression beside text, in a template": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Migration = migrationOf(`{"spec":{"vm":"vm-${workload.metadata.name}"}}`)
			},
			want: `spec.migration.template.spec.vm: "vm-${workload.metadata.name}" looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}`,
		},
		"two expressions in a string, in a template": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Migration = migrationOf(`{"spec":{"vm":"${workload.metadata.name}${workload.metadata.name}"}}`)
			},
			want: "looks like an expression; one must be the whole string",
		},
		"an expression for the name of a field": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Migration = migrationOf(`{"metadata":{"labels":{"${pod.metadata.name}":"x"}}}`)
			},
			want: `spec.migration.template.metadata.labels: "${pod.metadata.name}" has a ${`,
		},
		"an expression that is not closed, in the body of a call": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Cancel = &v1alpha1.SubresourceCall{APIVersion: "example.com/v1", Resource: "machines", Subresource: "cancel", Body: &runtime.RawExtension{Raw: []byte(`{"node":"${pod.spec.nodeName"}`)}}
			},
			want: `spec.cancel.body.node: "${pod.spec.nodeName" is not closed`,
		},
		"an expression as in a template": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "${workload.spec.strategy}" },
			want:   `spec.strategy: "${workload.spec.strategy}" has a ${, which means something only in templates and bodies: write the expression alone`,
		},
		"a template in a string literal, which would be written as it is": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Mark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "add", Path: "/spec/node", Value: "'${pod.spec.nodeName}'"}}}
			},
			want: `spec.mark.operations[0].value: "'${pod.spec.nodeName}'" has a ${`,
		},
		"a template in a path": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Mark = patchOf("", "add", "/metadata/annotations/${pod.metadata.name}")
			},
			want: `spec.mark.operations[0].path: "/metadata/annotations/${pod.metadata.name}" has a ${`,
		},
		"a template in the text for people": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.NotMigratableText = "${pod.metadata.name} stays" },
			want:   "spec.notMigratableText: ",
		},
		"a constant strategy that is none of the four": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = `"Migrate"` },
			want:   `spec.strategy: "Migrate" is none of None, LiveMigrate, LiveMigrateIfPossible and External, and it would be the same for every pod: write one of them`,
		},
		"done is a string": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "string(workload.status.phase)" },
			want:   "spec.done must be of type bool, but is string: compare it with something, as with == 'x'",
		},
		"done may be missing": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "workload.?status.?done" },
			want:   "spec.done must be of type bool, but is optional_type(dyn): say what counts when it is missing, as with .orValue(false)",
		},
		"done is a string, and says it is anything": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "dyn('yes')" },
			want:   "spec.done must be of type bool, but can be string",
		},
		"done is a string in one of its branches": {
			change: func(s *v1alpha1.EvacuationPolicySpec) {
				s.Done = "has(workload.status) ? workload.status.done : dyn('')"
			},
			want: "spec.done must be of type bool, but can be string",
		},
		"done is a string while the field is missing": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "workload.?status.?done.orValue('')" },
			want:   "spec.done must be of type bool, but can be string",
		},
		"done is null in one of its branches": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "workload.spec.a == 1 ? dyn(null) : dyn(true)" },
			want:   "spec.done must be of type bool, but can be null_type",
		},
		"a strategy that is a number in one of its branches": {
			change: func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "workload.?spec.?strategy.orValue(1)" },
			want:   "spec.strategy must be of type string, but can be int",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := compilePolicy(simple(tc.change))
			if p.refused == nil || !strings.Contains(p.refused.Error(), tc.want) {
				t.Errorf("want %q, got %v", tc.want, p.refused)
			}
		})
	}
}

// What may be right is left to the run time.
func TestWhatMayBeMeantIsAccepted(t *testing.T) {
	cases := map[string]func(*v1alpha1.EvacuationPolicySpec){
		"a template of an expression and a text": func(s *v1alpha1.EvacuationPolicySpec) {
			s.Migration = migrationOf(`{"spec":{"vm":"${workload.metadata.name}","priority":"high"}}`)
			s.Migration.SourceNode = "workload.status.nodeName"
		},
		"a constant strategy that is one of the four": func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "'LiveMigrate'" },
		"done, whatever its type":                     func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "workload.status.done" },
		"done, with the right fallback":               func(s *v1alpha1.EvacuationPolicySpec) { s.Done = "workload.?status.?done.orValue(false)" },
		"migratable that can be unknown":              func(s *v1alpha1.EvacuationPolicySpec) { s.Migratable = "workload.spec.a == 1 ? dyn(null) : dyn(true)" },
		"a strategy that says what is odd":            func(s *v1alpha1.EvacuationPolicySpec) { s.Strategy = "workload.?spec.?strategy.orValue('not known')" },
		"a dollar in a text":                          func(s *v1alpha1.EvacuationPolicySpec) { s.Message = "'It costs $5.'" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			if p := compilePolicy(simple(change)); p.refused != nil {
				t.Errorf("refused: %v", p.refused)
			}
		})
	}
}
