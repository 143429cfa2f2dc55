package vm

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// What compiles, or nearly, and cannot be meant. It is said what to write instead.
func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.EvacuationPolicySpec)
		want   string
	}{
		"an expression that is not closed, in a template": {withTemplate(`{"spec":{"vm":"${workload.metadata.name"}}`), `spec.migration.template.spec.vm: "${workload.metadata.name" is not closed: an expression ends with }`},
		"an expression beside text, in a template":        {withTemplate(`{"spec":{"vm":"vm-${workload.metadata.name}"}}`), `spec.migration.template.spec.vm: "vm-${workload.metadata.name}" looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}`},
		"two expressions in a string, in a template":      {withTemplate(`{"spec":{"vm":"${workload.metadata.name}${workload.metadata.name}"}}`), "looks like an expression; one must be the whole string"},
		"an expression for the name of a field":           {withTemplate(`{"metadata":{"labels":{"${pod.metadata.name}":"x"}}}`), `spec.migration.template.metadata.labels: "${pod.metadata.name}" has a ${`},
		"an expression that is not closed, in the body of a call": {func(s *v1alpha1.EvacuationPolicySpec) {
			s.Cancel = &v1alpha1.SubresourceCall{APIVersion: "example.com/v1", Resource: "machines", Subresource: "cancel", Body: &runtime.RawExtension{Raw: []byte(`{"node":"${pod.spec.nodeName"}`)}}
		}, `spec.cancel.body.node: "${pod.spec.nodeName" is not closed`},
		"an expression as in a template":                                  {withStrategy("${workload.spec.strategy}"), `spec.strategy: "${workload.spec.strategy}" has a ${, which means something only in templates and bodies: write the expression alone`},
		"a template in a string literal, which would be written as it is": {withMark(patchOf("", "add", "/spec/node", "'${pod.spec.nodeName}'")), `spec.mark.operations[0].value: "'${pod.spec.nodeName}'" has a ${`},
		"a template in a path":                                            {withMark(patchOf("", "add", "/metadata/annotations/${pod.metadata.name}", "'a'")), `spec.mark.operations[0].path: "/metadata/annotations/${pod.metadata.name}" has a ${`},
		"a template in the text for people":                               {func(s *v1alpha1.EvacuationPolicySpec) { s.NotMigratableText = "${pod.metadata.name} stays" }, "spec.notMigratableText: "},
		"a constant strategy that is none of the four":                    {withStrategy(`"Migrate"`), `spec.strategy: "Migrate" is none of None, LiveMigrate, LiveMigrateIfPossible and External, and it would be the same for every pod: write one of them`},
		"done is a string":                                                {withDone("string(workload.status.phase)"), "spec.done must be of type bool, but is string: compare it with something, as with == 'x'"},
		"done may be missing":                                             {withDone("workload.?status.?done"), "spec.done must be of type bool, but is optional_type(dyn): say what counts when it is missing, as with .orValue(false)"},
		"done is a string, and says it is anything":                       {withDone("dyn('yes')"), "spec.done must be of type bool, but can be string"},
		"done is a string in one of its branches":                         {withDone("has(workload.status) ? workload.status.done : dyn('')"), "spec.done must be of type bool, but can be string"},
		"done is a string while the field is missing":                     {withDone("workload.?status.?done.orValue('')"), "spec.done must be of type bool, but can be string"},
		"done is null in one of its branches":                             {withDone("workload.spec.a == 1 ? dyn(null) : dyn(true)"), "spec.done must be of type bool, but can be null_type"},
		"a strategy that is a number in one of its branches":              {withStrategy("workload.?spec.?strategy.orValue(1)"), "spec.strategy must be of type string, but can be int"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, tc.change, tc.want, false)
		})
	}
}

// What may be right is left to the run time.
func TestWhatMayBeMeantIsAccepted(t *testing.T) {
	cases := map[string]func(*v1alpha1.EvacuationPolicySpec){
		"a template of an expression and a text": func(s *v1alpha1.EvacuationPolicySpec) {
			withTemplate(`{"spec":{"vm":"${workload.metadata.name}","priority":"high"}}`)(s)
			s.Migration.SourceNode = "workload.status.nodeName"
		},
		"a constant strategy that is one of the four": withStrategy("'LiveMigrate'"),
		"done, whatever its type":                     withDone("workload.status.done"),
		"done, with the right fallback":               withDone("workload.?status.?done.orValue(false)"),
		"migratable that can be unknown":              func(s *v1alpha1.EvacuationPolicySpec) { s.Migratable = "workload.spec.a == 1 ? dyn(null) : dyn(true)" },
		"a strategy that says what is odd":            withStrategy("workload.?spec.?strategy.orValue('not known')"),
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
