package doctor

import (
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/internal/keys"
)

// Source is something that facts are read from.
type Source string

// The sources. Lists are named after the resource.
const (
	Version            Source = "version"
	CRDs               Source = "customresourcedefinitions"
	AdmissionPolicies  Source = "validatingadmissionpolicies"
	PolicyBindings     Source = "validatingadmissionpolicybindings"
	ValidatingWebhooks Source = "validatingwebhookconfigurations"
	MutatingWebhooks   Source = "mutatingwebhookconfigurations"
	Deployments        Source = "deployments"
	ManagerPods        Source = "manager pods"
	Leader             Source = "leases"
	Secret             Source = "secrets"
	CertManager        Source = "certificates"
	ServiceAccounts    Source = "serviceaccounts"
	Reviews            Source = "subjectaccessreviews"
	Evictions          Source = "pods/eviction"
	Budgets            Source = "poddisruptionbudgets"
	Namespaces         Source = "namespaces"
	Pods               Source = "pods"
	Nodes              Source = "nodes"
	Registrations      Source = "evictioninterceptors"
	EvacuationPolicies Source = "evacuationpolicies"
	Hooks              Source = "evacuationhooks"
	EvictionBudgets    Source = "evictionbudgets"
	Requests           Source = "evictionrequests"
	Maintenances       Source = "nodemaintenances"
	NativeState        Source = "configmaps"
	NativeRequests     Source = "evictionrequests.lifecycle.k8s.io"
	NodePools          Source = "nodepools.karpenter.sh"
	Machines           Source = "machines.cluster.x-k8s.io"
	Workloads          Source = "deployments, statefulsets, daemonsets, jobs, cronjobs, priorityclasses and clusterroles"
)

// Facts are the input of a report. What could not be read is empty, and Unread says
// why.
type Facts struct {
	Now time.Time
	// Namespace of the installation.
	Namespace string
	// ServiceAccount is the manager's.
	ServiceAccount string
	// Plugin is the version of this program.
	Plugin string
	// Kubernetes is the API server's version, such as v1.37.2.
	Kubernetes string
	// NativeServed: the API server serves lifecycle.k8s.io. Native: the manager looks at it, too,
	// so that native responders of pods are interceptors.
	NativeServed, Native bool
	// InCharge is what is remembered of who moves native Evictions; nil if there is nothing.
	InCharge *charge.State
	// Unseen are native EvictionRequests without a status. They are only read where the manager
	// looks at that API.
	Unseen []lifecyclev1alpha1.EvictionRequest
	// CRDs are those of our group.
	CRDs []apiextensionsv1.CustomResourceDefinition
	// AdmissionPolicies and PolicyBindings of the cluster.
	AdmissionPolicies []admissionregistrationv1.ValidatingAdmissionPolicy
	PolicyBindings    []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// Validating and Mutating are all webhook configurations of the cluster.
	Validating []admissionregistrationv1.ValidatingWebhookConfiguration
	Mutating   []admissionregistrationv1.MutatingWebhookConfiguration
	// Deployments are those of managers, in any namespace.
	Deployments []appsv1.Deployment
	// ManagerPods are the pods of the installation's Deployment.
	ManagerPods []corev1.Pod
	// Lease is the leader's, nil if there is none.
	Lease *coordinationv1.Lease
	// Certificate has the public part of the webhook's Secret, by key; nil if there is
	// no Secret.
	Certificate map[string][]byte
	// CertManager is the Certificate that fills the Secret, nil if there is none.
	CertManager *CertificateStatus
	// Permissions of the manager.
	Permissions []Permission
	// Probe is the result of a dry run that must reach a manager.
	Probe *Probe
	// Budgets of the cluster, ours included.
	Budgets    []policyv1.PodDisruptionBudget
	Namespaces []corev1.Namespace
	// Pods that have not ended and name interceptors, have responders, or are in a namespace
	// with budgets, with the fields that the manager keeps.
	Pods []corev1.Pod
	// Nodes that have annotations of a maintenance.
	Nodes              []corev1.Node
	Registrations      []v1alpha1.EvictionInterceptor
	Hooks              []v1alpha1.EvacuationHook
	EvictionBudgets    []v1alpha1.EvictionBudget
	EvacuationPolicies []v1alpha1.EvacuationPolicy
	// WriteDryRuns are dry runs of the policies' writes.
	WriteDryRuns []WriteDryRun
	// Intercepted are the namespaces with pods that have interceptors, sorted, and Tried
	// are dry runs of writes there.
	Intercepted []string
	Tried       []Tried
	// Requests that have not ended.
	Requests     []v1alpha1.EvictionRequest
	Maintenances []v1alpha1.NodeMaintenance
	// Tools are the workloads of programs that evict pods, and TimeLimits what objects say of how
	// long these wait. Both are only those that are known.
	Tools      []DrainTool
	TimeLimits []TimeLimit
	// Keys are the labels and annotations of ours on the objects of the cluster.
	Keys []Key
	// Unread says what could not be read.
	Unread map[Source]Unread
}

// Unread is why a source could not be read.
type Unread struct {
	// Forbidden: the user lacks a permission.
	Forbidden bool
	// Missing: the API server does not know the kind.
	Missing bool
	// Detail is the error's text.
	Detail string
}

// CertificateStatus is what cert-manager says of a Certificate.
type CertificateStatus struct {
	Name    string
	Ready   bool
	Message string
}

// Probe is the answer to the dry run of an eviction.
type Probe struct {
	// Problem is empty if the call reached a manager.
	Problem string
}

// WriteDryRun is a dry run of what a policy writes.
type WriteDryRun struct {
	vm.DryRunResult
	// Problem is why it could not be tried; empty if it was.
	Problem string
}

// Key is a label or an annotation of ours, on an object.
type Key struct {
	keys.Written
	// Object has it, as findings name objects.
	Object string
	// Owner is the controller of a pod, as kind/namespace/name: the pods of one owner are one finding.
	Owner string
}

// Permission is one that the manager needs.
type Permission struct {
	Need
	Allowed bool
}

// deployment is the one of the installation, nil if there is none.
func (f *Facts) deployment() *appsv1.Deployment {
	for i := range f.Deployments {
		if f.Deployments[i].Namespace == f.Namespace {
			return &f.Deployments[i]
		}
	}
	return nil
}

// settings are the manager's settings that matter here.
type settings struct {
	// known: there is a Deployment that says so.
	known         bool
	leaderElect   bool
	guard         bool
	surge         bool
	maintenance   bool
	hooks         bool
	hooksExec     bool
	budgets       bool
	preemption    bool
	descheduler   bool
	protected     bool
	configuration string
	secret        string
	certManager   string
	logConfig     string
	// native is native.controllers, Off without its feature gate; nativeState is the name of the
	// ConfigMap with who moves native Evictions.
	native          charge.Mode
	nativeState     string
	presets         []string
	allowedReserved []string
	// managedPolicy: the manager manages the webhook's failure policy.
	managedPolicy bool
	// nativeGateOff: the feature gate of the native API is off.
	nativeGateOff bool
}

// managerContainer is the name of the container that runs the manager.
const managerContainer = "manager"

func (f *Facts) settings() settings {
	s := settings{managedPolicy: true, nativeState: cli.DefaultNativeState}
	d := f.deployment()
	if d == nil {
		return s
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name != managerContainer {
			continue
		}
		s.known = true
		for _, arg := range c.Args {
			name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			s.set(name, value, value == "true" || !hasValue)
		}
		if s.nativeGateOff {
			s.native = charge.Off
		}
	}
	return s
}

func (s *settings) set(name, value string, on bool) {
	switches := map[string]*bool{
		"leader-elect": &s.leaderElect, "guard": &s.guard, "surge": &s.surge, "maintenance": &s.maintenance, "hooks": &s.hooks,
		"hooks-exec": &s.hooksExec, "budgets": &s.budgets, "preemption": &s.preemption, "metrics-protected": &s.protected,
	}
	names := map[string]*string{
		"webhook-configuration": &s.configuration, "webhook-cert-secret": &s.secret, "cert-manager-certificate": &s.certManager,
		"log-level-config": &s.logConfig, "native-state": &s.nativeState,
	}
	switch name {
	case "descheduler-mark-in-progress", "descheduler-mark-evict-only":
		s.descheduler = s.descheduler || on
	case "evacuation-preset":
		s.presets = append(s.presets, strings.Split(value, ",")...)
	case "allowed-reserved-name":
		s.allowedReserved = append(s.allowedReserved, strings.Split(value, ",")...)
	case "native-controllers":
		s.native = charge.Mode(value)
	case "feature-gates":
		gates := strings.Split(value, ",")
		s.managedPolicy = s.managedPolicy && !slices.Contains(gates, managedFailurePolicyOff)
		s.nativeGateOff = s.nativeGateOff || slices.Contains(gates, cli.NativeGateOff)
	default:
		if set, ok := switches[name]; ok {
			*set = on
		}
		if set, ok := names[name]; ok {
			*set = value
		}
	}
}

// managedFailurePolicyOff is the feature gate setting that turns this off.
const managedFailurePolicyOff = "ManagedFailurePolicy=false"

// configuration is the webhook configuration of the installation, nil if there is
// none.
func (f *Facts) configuration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	wanted := f.settings().configuration
	for i := range f.Validating {
		c := &f.Validating[i]
		if wanted != "" && c.Name == wanted || wanted == "" && webhookNamed(c, failurepolicy.EvictionWebhook) != nil {
			return c
		}
	}
	return nil
}

// webhookNamed is nil if the configuration has none of that name.
func webhookNamed(c *admissionregistrationv1.ValidatingWebhookConfiguration, name string) *admissionregistrationv1.ValidatingWebhook {
	i := slices.IndexFunc(c.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Webhooks[i]
}

// secretName is the name of the Secret with the webhook's certificate.
func (f *Facts) secretName() string {
	if name := f.settings().secret; name != "" {
		return name
	}
	if c := f.configuration(); c != nil {
		return c.Name + "-webhook-cert"
	}
	return ""
}
