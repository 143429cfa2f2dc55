package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Severity says how serious a finding is.
type Severity string

// The severities.
const (
	// OK: there is nothing to do.
	OK Severity = "OK"
	// Skip: there is nothing to check, because of another check's finding.
	Skip Severity = "SKIP"
	// Warn: Drawbridge works, but evictions have a problem, or something could not be
	// checked.
	Warn Severity = "WARN"
	// Fail: Drawbridge does not do its work.
	Fail Severity = "FAIL"
)

// rank orders the severities.
func (s Severity) rank() int { return slices.Index([]Severity{Skip, OK, Warn, Fail}, s) }

// Finding is a problem.
type Finding struct {
	// Check that found it.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Object is the affected object, as kind/name or kind/namespace/name.
	Object string `json:"object,omitempty"`
	// What is wrong.
	What string `json:"what"`
	// Do says what to do.
	Do string `json:"do"`
}

// Result is the result of one check.
type Result struct {
	Check string `json:"check"`
	// Severity is the worst of the findings.
	Severity Severity `json:"severity"`
	// Summary says in a few words what was checked.
	Summary string `json:"summary,omitempty"`
	// Blind: the check could not read what it needs, so it says nothing about the
	// installation.
	Blind bool `json:"blind,omitempty"`
	// Findings, the worst first.
	Findings []Finding `json:"findings,omitempty"`
}

// Report is the result of all checks.
type Report struct {
	// Namespace of the installation.
	Namespace string `json:"namespace"`
	// Kubernetes is the API server's version.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Severity is the worst of all.
	Severity Severity `json:"severity"`
	// Checks in reading order: earlier ones explain later ones.
	Checks []Result `json:"checks"`
}

// Count is how many checks have that severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, c := range r.Checks {
		if c.Severity == s {
			n++
		}
	}
	return n
}

// Blind counts the checks that could not read what they need. most is true if they are
// more than half of the checks that were not skipped: then the report says nothing
// about the installation as a whole.
func (r Report) Blind() (n int, most bool) {
	for _, c := range r.Checks {
		if c.Blind {
			n++
		}
	}
	return n, 2*n > len(r.Checks)-r.Count(Skip)
}

// check is one check.
type check struct {
	name string
	// about describes the check to people.
	about string
	// needs must have been read.
	needs []Source
	// examine is pure. It may rely on needs being read.
	examine func(f *Facts) verdict
}

// verdict is what a check says.
type verdict struct {
	// summary is for when all is well.
	summary  string
	findings []Finding
}

func (v *verdict) fail(object, what, do string) { v.add(Fail, object, what, do) }
func (v *verdict) warn(object, what, do string) { v.add(Warn, object, what, do) }

func (v *verdict) add(severity Severity, object, what, do string) {
	v.findings = append(v.findings, Finding{Severity: severity, Object: object, What: what, Do: do})
}

// checks are all there are, in the order of the report.
var checks = []check{
	{"kubernetes", "the version of Kubernetes is supported", []Source{Version}, kubernetesVersion},
	{"api", "the CustomResourceDefinitions are installed, and served", []Source{CRDs}, api},
	{"versions", "plugin, manager, chart and CustomResourceDefinitions may run together", []Source{CRDs, Deployments}, versions},
	{"admission-policies", "the ValidatingAdmissionPolicies are there, and bound", []Source{AdmissionPolicies, PolicyBindings}, admissionPolicies},
	{"replicas", "the manager's replicas are ready and of one version, and one leads", []Source{Deployments, ManagerPods, Leader}, replicas},
	{"permissions", "the manager has the permissions that it needs", []Source{ServiceAccounts, Reviews}, permissions},
	{"webhook", "the webhook configuration is complete, with the failure policy that is wanted", []Source{ValidatingWebhooks}, webhookConfiguration},
	{"certificate", "callers trust the webhook's certificate, and it is valid for a while", []Source{ValidatingWebhooks, Secret}, certificate},
	{"cert-manager", "cert-manager maintains the certificate, if it is configured to", []Source{Deployments, CertManager}, certManager},
	{"reachable", "a dry run of an eviction reaches the manager", []Source{Evictions}, reachable},
	{"native-api", "if Kubernetes serves its own API for evictions, the right controllers move them", []Source{NativeState, NativeRequests}, nativeAPI},
	{"other-webhooks", "no other product answers evictions", []Source{ValidatingWebhooks, MutatingWebhooks}, otherWebhooks},
	{"several-budgets", "no pod has more than one PodDisruptionBudget", []Source{Budgets, Pods}, severalBudgets},
	{"blocking-budgets", "every PodDisruptionBudget can allow a disruption", []Source{Budgets, Pods}, blockingBudgets},
	{"annotations", "the interceptors that pods name are well formed", []Source{Pods}, annotations},
	{"keys", "the labels and annotations under drawbridge.dev are known, and their values understood", []Source{Namespaces, Pods, Nodes, Workloads}, understoodKeys},
	{"excluded-namespaces", "no pod with interceptors is in a namespace that the webhook leaves out", []Source{ValidatingWebhooks, Namespaces, Pods}, excludedNamespaces},
	{"registrations", "the EvictionInterceptors are accepted, and say which pods they mean", []Source{Registrations}, registrations},
	{"eviction-budgets", "the EvictionBudgets are accepted and cover pods, and grant what waits", []Source{EvictionBudgets}, evictionBudgets},
	{"evacuation-policies", "the EvacuationPolicies are ready", []Source{EvacuationPolicies}, evacuationPolicies},
	{"evacuations", "dry runs of marks and migrations on a running machine are stored unchanged", []Source{EvacuationPolicies}, evacuations},
	{"refused-writes", "dry runs of a request and of the guard's budget are accepted where pods have interceptors", []Source{Pods, Registrations}, refusedWrites},
	{"silent-interceptors", "active interceptors have reported", []Source{Requests}, silentInterceptors},
	{"drain-tools", "the programs that evict pods leave interceptors the time that they need", []Source{Workloads, NodePools, Machines, Registrations}, knownTools},
	{"nodes", "no node is left over from a maintenance", []Source{Nodes, Maintenances}, leftoverNodes},
}

// Checks returns the names of all checks and what they check, in the order of the
// report.
func Checks() [][2]string {
	names := make([][2]string, 0, len(checks))
	for _, c := range checks {
		names = append(names, [2]string{c.name, c.about})
	}
	return names
}

// Examine makes the report. It depends on nothing but the facts.
func Examine(f Facts) Report {
	r := Report{Namespace: f.Namespace, Kubernetes: f.Kubernetes, Severity: OK, Checks: make([]Result, 0, len(checks))}
	for _, c := range checks {
		result := c.result(&f)
		if result.Severity.rank() > r.Severity.rank() {
			r.Severity = result.Severity
		}
		r.Checks = append(r.Checks, result)
	}
	return r
}

func (c check) result(f *Facts) Result {
	result := Result{Check: c.name, Severity: OK}
	var v verdict
	skipped := ""
	for _, source := range c.needs {
		unread, ok := f.Unread[source]
		switch {
		case !ok:
		case unread.Missing:
			skipped = fmt.Sprintf("the API server knows no %s", source)
		default:
			v.unread(f, source, unread)
		}
	}
	switch {
	case len(v.findings) > 0: // With half of the facts, the finding would be wrong.
		result.Blind = true
	case skipped != "":
		result.Severity, result.Summary = Skip, skipped
	default:
		v = c.examine(f)
	}
	if len(v.findings) == 0 {
		result.Summary = cmp.Or(result.Summary, v.summary)
		return result
	}
	for i := range v.findings {
		v.findings[i].Check = c.name
		if v.findings[i].Severity.rank() > result.Severity.rank() {
			result.Severity = v.findings[i].Severity
		}
	}
	slices.SortStableFunc(v.findings, func(a, b Finding) int { return cmp.Compare(b.Severity.rank(), a.Severity.rank()) })
	result.Findings = v.findings
	return result
}

// unread says what could not be read, and what is needed to read it.
func (v *verdict) unread(f *Facts, source Source, unread Unread) {
	if !unread.Forbidden {
		v.warn("", fmt.Sprintf("not checked: %s: %s", source, unread.Detail), "Try again; if it stays, look at the API server.")
		return
	}
	v.warn("", fmt.Sprintf("not checked: %s", unread.Detail), "Ask for "+permissionFor(f, source)+". The ClusterRole drawbridge-doctor of the chart has it"+exceptSecret(source)+".")
}

func exceptSecret(source Source) string {
	if source == Secret {
		return " not, because the Secret holds a private key; \"reachable\" proves the same"
	}
	return ""
}

// permissionFor is the permission needed to read a source.
func permissionFor(f *Facts, source Source) string {
	switch source {
	case Version:
		return `"get" on the path /version`
	case ManagerPods:
		return fmt.Sprintf(`"list" on pods in the namespace %s`, f.Namespace)
	case ServiceAccounts:
		return fmt.Sprintf(`"list" on serviceaccounts in the namespace %s`, f.Namespace)
	case Leader, Secret, CertManager, NativeState:
		return fmt.Sprintf(`"get" on %s in the namespace %s`, source, f.Namespace)
	case Reviews:
		return `"create" on subjectaccessreviews.authorization.k8s.io`
	case Evictions:
		return fmt.Sprintf(`"create" on pods/eviction in the namespace %s`, f.Namespace)
	default:
		return fmt.Sprintf(`"list" on %s in all namespaces`, source)
	}
}

// most is how many findings of a kind are listed.
const most = 10

// bounded keeps the first findings and counts the rest.
func bounded(findings []Finding, plural string) []Finding {
	if len(findings) <= most {
		return findings
	}
	rest := findings[most:]
	worst := rest[0]
	for _, f := range rest {
		if f.Severity.rank() > worst.Severity.rank() {
			worst = f
		}
	}
	return append(slices.Clip(findings[:most]), Finding{
		Severity: worst.Severity,
		What:     fmt.Sprintf("%d more %s", len(rest), plural),
		Do:       "Repair those above, then look again.",
	})
}

// list names at most three things and counts the rest.
func list(names []string) string {
	return text.Few(names, 3)
}
