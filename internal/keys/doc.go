// Package keys is the table of the labels and annotations under drawbridge.dev: where
// each belongs, who writes it, and which values are understood. The chart's policy that
// warns of others (keys.drawbridge.dev), `kubectl drawbridge doctor` and
// docs/reference/labels-and-annotations.md are made from it.
package keys

import (
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Form is what a key is a key of.
type Form string

// The forms. Users write labels and annotations. The others are in the table so that it
// has every name of ours.
const (
	Label      Form = "label"
	Annotation Form = "annotation"
	Finalizer  Form = "finalizer"
	Condition  Form = "condition"
	Taint      Form = "taint"
)

// Writer is who writes a key.
type Writer string

// The writers.
const (
	// User: whoever writes the object.
	User Writer = "you"
	// Drawbridge alone.
	Drawbridge Writer = "Drawbridge"
	// Chart: the chart, or whoever makes such objects without it.
	Chart Writer = "the chart"
)

// Place is what has a key: the kind of an object, or a pod template.
type Place string

// PodTemplate is the template of the pods of any workload.
const PodTemplate Place = "pod template"

// TemplateOf is the pod template of one kind.
func TemplateOf(kind string) Place { return PodTemplate + " of a " + Place(kind) }

// isTemplate reports whether it is a template of pods.
func (p Place) isTemplate() bool { return strings.HasPrefix(string(p), string(PodTemplate)) }

// Row is one key.
type Row struct {
	Key    string
	Form   Form
	Writer Writer
	// On are the places in which it has an effect.
	On []Place
	// Values says in words which values are understood.
	Values string
	// Pattern is what a value that is understood matches, from its beginning to its end
	// (RE2). Empty: any value.
	Pattern string
	// Switch is the value of the chart without which the key does nothing; empty if there
	// is none.
	Switch string
	// Idle is the value that asks for nothing, so that it may stand there without Switch.
	Idle string
	// About says what it is for.
	About string
}

// domains are Drawbridge's own. The first has all keys; under the others are names of
// interceptors and requesters, and no keys. Other subdomains may be anybody's.
var domains = append([]string{
	v1alpha1.GroupName, v1alpha1.BudgetInterceptor, v1alpha1.HookInterceptorSuffix[1:], v1alpha1.MaintenanceRequesterSuffix,
	"users." + v1alpha1.GroupName, "serviceaccounts." + v1alpha1.GroupName,
}, v1alpha1.ReservedInterceptors[1:]...)

// IsOurs reports whether a key is under a domain of Drawbridge.
func IsOurs(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && slices.Contains(domains, domain)
}

const (
	number  = `0|-?[1-9][0-9]{0,8}|-?1[0-9]{9}|2000000000|-2[01][0-9]{8}`
	label63 = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	fqdn    = label63 + `([.]` + label63 + `)+`
)

// Rows are all keys, those of users first.
var Rows = []Row{
	{
		Key: v1alpha1.InterceptorsAnnotation, Form: Annotation, Writer: User, On: []Place{"Pod", PodTemplate},
		Values: "names of interceptors: fully qualified domain names, at most 15, separated by commas without spaces", Pattern: fqdn + `(,` + fqdn + `){0,14}`,
		About: "names the pod's interceptors; see [concepts](../concepts.md)",
	},
	{
		Key: v1alpha1.GroupName + "/surge", Form: Label, Writer: User, On: []Place{"Namespace", "Pod", TemplateOf("Deployment")},
		Values: "enabled, disabled", Pattern: `enabled|disabled`, Switch: "surge.enabled", Idle: "disabled",
		About: "whether the pods of Deployments, and of Argo Rollouts, get their replacements first; see [surge](../guides/surge.md)",
	},
	{
		Key: v1alpha1.HookETAAnnotation, Form: Annotation, Writer: User, On: []Place{"Job"},
		Values: "a time in RFC 3339, such as 2026-11-01T12:05:00Z", Pattern: `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`, Switch: "hooks.enabled",
		About: "when the Job of a hook expects to finish; see [hooks](../guides/hooks.md)",
	},
	{
		Key: v1alpha1.AllowDisruptionAnnotation, Form: Annotation, Writer: User, On: []Place{"PriorityClass", "Pod"},
		Values: "an int32 in plain decimal digits, at most 2000000000", Pattern: number, Switch: "preemption.enabled",
		About: "the lowest priority that may violate the budgets of the class's pods; the API server copies it to pods. See [preemption](../guides/preemption.md)",
	},
	{
		Key: v1alpha1.GroupName + "/aggregate-to-budgets", Form: Label, Writer: User, On: []Place{"ClusterRole"},
		Values: `"true"`, Pattern: `true`, Switch: "budgets.enabled",
		About: "adds the role's rules to what EvictionBudgets may read; see [budgets](../guides/budgets.md)",
	},
	{
		Key: v1alpha1.GroupName + "/failure-policy", Form: Annotation, Writer: Chart, On: []Place{"ValidatingWebhookConfiguration"},
		Values: "Fail, Ignore", Pattern: `Fail|Ignore`, About: "the failure policy that is wanted; see [certificates](../operations/certificates.md)",
	},
	{
		Key: v1alpha1.GroupName + "/webhook-token", Form: Annotation, Writer: Chart,
		On:     []Place{"ValidatingWebhookConfiguration", "Pod", TemplateOf("Deployment")},
		Values: "path", Pattern: `path`, About: "the API server authenticates with a token in the path; see [certificates](../operations/certificates.md)",
	},
	ours(Label, v1alpha1.GuardLabel, "the guard of the pod is closed; see [the guard](../guides/guard.md)", "Pod"),
	ours(Label, v1alpha1.GuardBudgetLabel, "it is a budget of the guard", "PodDisruptionBudget"),
	ours(Annotation, v1alpha1.GroupName+"/handed-up", "what was taken from a pod that gets a replacement first", "Pod"),
	ours(Annotation, v1alpha1.GroupName+"/surge-failed", "the pod got no replacement, for which request and why", "Pod"),
	ours(Annotation, v1alpha1.GroupName+"/former-deletion-cost", "the pod's own deletion cost while its eviction is requested, empty if it has none; see [concepts](../concepts.md#cheapest-to-lose-first)", "Pod"),
	ours(Annotation, v1alpha1.MaintenancesAnnotation, "the maintenances of the node; see [NodeMaintenance](nodemaintenance.md)", "Node"),
	ours(Annotation, v1alpha1.MaintenancePhaseAnnotation, "the most advanced stage of these", "Node"),
	ours(Annotation, v1alpha1.MaintenanceWavesAnnotation, "the wave that each of these has begun last on the node, and when", "Node"),
	ours(Annotation, v1alpha1.CordonAnnotation, "who has made the node unschedulable", "Node"),
	ours(Taint, v1alpha1.MaintenanceTaint, "pods of DaemonSets leave the node and are not recreated, with the effect NoSchedule; see [NodeMaintenance](../guides/maintenance.md#pods-of-daemonsets)", "Node"),
	ours(Label, v1alpha1.HookLabel, "the hook of the Job", "Job", TemplateOf("Job"), "Pod"),
	ours(Label, v1alpha1.HookRequestLabel, "the UID of the EvictionRequest", "Job", TemplateOf("Job"), "Pod"),
	ours(Label, v1alpha1.MigrationPolicyLabel, "the EvacuationPolicy of a migration", migration),
	ours(Label, v1alpha1.MigrationRequestLabel, "the EvictionRequest of a migration", migration),
	ours(Label, v1alpha1.MigrationAttemptLabel, "counts the migrations of one evacuation", migration),
	ours(Annotation, v1alpha1.GroupName+"/evacuate-node", "the mark of the preset kubevirt: the node to leave", "VirtualMachineInstance"),
	ours(Annotation, v1alpha1.SeenInterceptorsAnnotation, "the interceptors that were seen when the request was made", "EvictionRequest"),
	ours(Annotation, v1alpha1.NotifiedAnnotation, "the requesters that were told of the pod's end", "EvictionRequest"),
	ours(Label, v1alpha1.GroupName+"/preset", "the preset that the object belongs to", "EvacuationPolicy", "EvictionInterceptor"),
	ours(Label, v1alpha1.GroupName+"/requester-lease", "it is the lease of a requester", "Lease"),
	ours(Annotation, v1alpha1.GroupName+"/requester", "the requester of the lease", "Lease"),
	ours(Annotation, v1alpha1.GroupName+"/node", "the node that the requester drains", "Lease"),
	ours(Annotation, v1alpha1.GroupName+"/caller-class", "the kind of tool that called", "Lease"),
	ours(Annotation, v1alpha1.GroupName+"/other-callers", "other kinds of tools that called", "Lease"),
	ours(Annotation, v1alpha1.GroupName+"/node-markers", "the drain markers seen on the node", "Lease"),
	ours(Finalizer, v1alpha1.MaintenanceFinalizer, "keeps a NodeMaintenance until its nodes are released", "NodeMaintenance"),
	ours(Condition, v1alpha1.ConditionCancellationForbidden, "nobody wants the eviction any more, but an interceptor is past the point of no return; see [concepts](../concepts.md)", "EvictionRequest"),
	ours(Condition, v1alpha1.ConditionCutOff, "a requester's deadline has come before all interceptors were done; see [concepts](../concepts.md)", "EvictionRequest"),
	ours(Condition, v1alpha1.ConditionNodeLost, "whether the pod's node is lost; see [concepts](../concepts.md#lost-nodes)", "EvictionRequest"),
	ours(Condition, v1alpha1.ConditionShortNotice, "a deadline has left an interceptor less than it needs; see [concepts](../concepts.md)", "EvictionRequest"),
	ours(Condition, v1alpha1.ConditionUnchecked, "an interceptor completed while no manager ran; see [concepts](../concepts.md)", "EvictionRequest"),
}

// migration stands for the kinds of objects that EvacuationPolicies create.
const migration Place = "migration object"

func ours(form Form, key, about string, on ...Place) Row {
	return Row{Key: key, Form: form, Writer: Drawbridge, On: on, About: about}
}

// byKey returns the row of a key, nil if there is none.
func byKey(key string) *Row {
	i := slices.IndexFunc(Rows, func(r Row) bool { return r.Key == key })
	if i < 0 {
		return nil
	}
	return &Rows[i]
}

// belongs reports whether the key has an effect there.
func (r *Row) belongs(p Place) bool {
	return slices.Contains(r.On, p) || p.isTemplate() && slices.Contains(r.On, PodTemplate)
}
