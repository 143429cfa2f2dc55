package refused

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Write names a kind of write of the manager. The zero value is none.
type Write string

// The writes of the manager: a closed set, fit for metric labels.
const (
	// Request: an EvictionRequest is made, joined, left or deleted.
	Request Write = "request"
	// RequestLabels: the pod's labels are copied to its request.
	RequestLabels Write = "request_labels"
	// RequestStatus: the controller moves a request on.
	RequestStatus Write = "request_status"
	// Report: an interceptor of ours, the evictor among them, reports.
	Report Write = "report"
	// Lease: the Lease of a legacy requester.
	Lease Write = "lease"
	// GuardBudget: the guard's PodDisruptionBudget of a namespace.
	GuardBudget Write = "guard_budget"
	// GuardLabel: the guard's label of a pod.
	GuardLabel Write = "guard_label"
	// HandUp: a pod is handed up to its Deployment, or given back.
	HandUp Write = "hand_up"
	// Job: the Job of a hook.
	Job Write = "job"
	// HookStatus: the runs of an EvacuationHook.
	HookStatus Write = "hook_status"
	// BudgetStatus: the grants of an EvictionBudget.
	BudgetStatus Write = "budget_status"
	// Mark: the mark of an EvacuationPolicy on a workload or a pod.
	Mark Write = "mark"
	// Migration: the migration object of an EvacuationPolicy.
	Migration Write = "migration"
	// PolicyStatus: the status of an EvacuationPolicy.
	PolicyStatus Write = "policy_status"
	// InterceptorStatus: the status of an EvictionInterceptor.
	InterceptorStatus Write = "interceptor_status"
	// Node: a NodeMaintenance cordons, uncordons, taints or untaints a node.
	Node Write = "node"
	// PodCondition: the condition of a pod that a NodeMaintenance waits for.
	PodCondition Write = "pod_condition"
	// Maintenance: status and finalizer of a NodeMaintenance.
	Maintenance Write = "maintenance"
	// DeschedulerMark: the annotations that the descheduler reads.
	DeschedulerMark Write = "descheduler_mark"
	// DeletionCost: the pod's deletion cost while its eviction is requested.
	DeletionCost Write = "deletion_cost"
	// Preset: a registration or a policy of a preset.
	Preset Write = "preset"
	// Certificate: the Secret of the webhook's certificate.
	Certificate Write = "certificate"
	// WebhookConfiguration: the bundle and the failure policy of our webhooks.
	WebhookConfiguration Write = "webhook_configuration"
	// NativeRequest: an EvictionRequest of lifecycle.k8s.io is made or withdrawn, or says what
	// became of it.
	NativeRequest Write = "native_request"
	// NativeEviction: an Eviction of lifecycle.k8s.io is made, moved on or deleted.
	NativeEviction Write = "native_eviction"
	// NativeReport: a responder of ours, the evictor among them, reports in one.
	NativeReport Write = "native_report"
	// NativeCharge: the ConfigMap that says who moves them.
	NativeCharge Write = "native_charge"
	// Unnamed: a write that is missing here. The tests fail if there is one.
	Unnamed Write = "unnamed"
)

// Writes are all of them but Unnamed, in the order of the documentation.
func Writes() []Write {
	return []Write{
		Request, RequestLabels, RequestStatus, Report, Lease, GuardBudget, GuardLabel, HandUp, Job, HookStatus, BudgetStatus,
		Mark, Migration, PolicyStatus, InterceptorStatus, Node, PodCondition, Maintenance, DeschedulerMark, DeletionCost, Preset, Certificate, WebhookConfiguration,
		NativeRequest, NativeEviction, NativeReport, NativeCharge,
	}
}

// doings complete "Drawbridge cannot ...".
var doings = map[Write]string{
	Request:              "write the EvictionRequest",
	RequestLabels:        "copy the pod's labels to the EvictionRequest",
	RequestStatus:        "write the status of the EvictionRequest",
	Report:               "report in the status of the EvictionRequest",
	Lease:                "write the Lease of a caller",
	GuardBudget:          "write the guard's PodDisruptionBudget",
	GuardLabel:           "label the pod for the guard",
	HandUp:               "hand the pod up to its Deployment, or give it back",
	Job:                  "create or delete the hook's Job",
	HookStatus:           "record what the EvacuationHook does",
	BudgetStatus:         "record what the EvictionBudget grants",
	Mark:                 "mark the workload for evacuation, or remove the mark",
	Migration:            "create or delete the migration",
	PolicyStatus:         "write the status of the EvacuationPolicy",
	InterceptorStatus:    "write the status of the EvictionInterceptor",
	Node:                 "cordon, taint or release the node",
	PodCondition:         "set the pod's condition",
	Maintenance:          "write the NodeMaintenance",
	DeschedulerMark:      "annotate the pod for the descheduler",
	DeletionCost:         "change the deletion cost of the pod",
	Preset:               "write the objects of a preset",
	Certificate:          "store the webhook's certificate",
	WebhookConfiguration: "update the webhook configuration",
	NativeRequest:        "write the native EvictionRequest",
	NativeEviction:       "write the native Eviction",
	NativeReport:         "report in the status of the native Eviction",
	NativeCharge:         "remember who moves native Evictions",
	Unnamed:              "write an object",
}

// Doing completes "Drawbridge cannot ...".
func (w Write) Doing() string { return doings[w] }

// Action is the action of the events about the write, one word in CamelCase.
func (w Write) Action() string {
	var b strings.Builder
	b.WriteString("Write")
	for _, word := range strings.Split(string(w), "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// ByAction is the write with that action; not ok if there is none.
func ByAction(action string) (Write, bool) {
	for _, w := range Writes() {
		if w.Action() == action {
			return w, true
		}
	}
	return "", false
}

// Field managers that tell apart who writes a pod or a request.
const (
	managerLabels      = "drawbridge-labels"
	managerGuard       = "guard." + v1alpha1.GroupName
	managerSurge       = "surge." + v1alpha1.GroupName
	managerDescheduler = "descheduler." + v1alpha1.GroupName
	managerCost        = "deletion-cost." + v1alpha1.GroupName
)

// The kinds of lifecycle.k8s.io, one of which has the name of ours.
const (
	nativeGroup    = "lifecycle.k8s.io"
	nativeRequest  = "EvictionRequest." + nativeGroup
	nativeEviction = "Eviction." + nativeGroup
)

// kindOf is the name of a kind, which tells the native ones from ours.
func kindOf(gvk schema.GroupVersionKind) string {
	if gvk.Group == nativeGroup {
		return gvk.Kind + "." + gvk.Group
	}
	return gvk.Kind
}

// Name is the name of a write: of an object of that kind, which is one of ours or of
// Kubernetes' own, or of a subresource of it. Applied: by server-side apply.
func Name(kind, subresource string, applied bool, manager string) Write {
	switch kind {
	case "EvictionRequest":
		switch {
		case subresource != "" && applied:
			return Report
		case subresource != "":
			return RequestStatus
		case manager == managerLabels:
			return RequestLabels
		}
		return Request
	case "Pod":
		switch manager {
		case managerGuard:
			return GuardLabel
		case managerSurge:
			return HandUp
		case managerDescheduler:
			return DeschedulerMark
		case managerCost:
			return DeletionCost
		case "":
			return PodCondition
		}
		return Mark
	case nativeEviction:
		if applied {
			return NativeReport
		}
		return NativeEviction
	case "EvictionInterceptor", "EvacuationPolicy":
		switch {
		case subresource == "":
			return Preset
		case kind == "EvacuationPolicy":
			return PolicyStatus
		}
		return InterceptorStatus
	}
	if name, ok := byKind[kind]; ok {
		return name
	}
	return Unnamed
}

// byKind names the writes that their kind tells apart.
var byKind = map[string]Write{
	nativeRequest:                    NativeRequest,
	"ConfigMap":                      NativeCharge,
	"Lease":                          Lease,
	"PodDisruptionBudget":            GuardBudget,
	"Job":                            Job,
	"EvacuationHook":                 HookStatus,
	"EvictionBudget":                 BudgetStatus,
	"Node":                           Node,
	"NodeMaintenance":                Maintenance,
	"Secret":                         Certificate,
	"ValidatingWebhookConfiguration": WebhookConfiguration,
}
