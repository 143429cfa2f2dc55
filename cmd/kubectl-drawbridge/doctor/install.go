package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/skew"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// oldest is the oldest version of Kubernetes that is supported: the first with stable
// ValidatingAdmissionPolicies.
var oldest = version.MajorMinor(1, 30)

func kubernetesVersion(f *Facts) verdict {
	var v verdict
	v.summary = f.Kubernetes
	present, err := version.ParseGeneric(f.Kubernetes)
	switch {
	case err != nil:
		v.warn("", fmt.Sprintf("the API server calls its version %q, which cannot be read", f.Kubernetes), "Make sure that it is 1.30 or later.")
	case present.LessThan(oldest):
		v.fail("", fmt.Sprintf("Kubernetes %s is not supported: it lacks ValidatingAdmissionPolicy, so nobody checks who may request an eviction", f.Kubernetes), "Upgrade to 1.30 or later.")
	}
	return v
}

// kinds of our API, by the names of their CustomResourceDefinitions.
var kinds = []string{
	"evacuationhooks." + v1alpha1.GroupName,
	"evacuationpolicies." + v1alpha1.GroupName,
	"evictionbudgets." + v1alpha1.GroupName,
	"evictioninterceptors." + v1alpha1.GroupName,
	"evictionrequests." + v1alpha1.GroupName,
	"nodemaintenances." + v1alpha1.GroupName,
}

func api(f *Facts) verdict {
	var v verdict
	v.summary = fmt.Sprintf("%s, served as %s", text.Counted(len(kinds), "kind"), v1alpha1.SchemeGroupVersion.Version)
	for _, name := range kinds {
		object := "customresourcedefinition/" + name
		i := slices.IndexFunc(f.CRDs, func(c apiextensionsv1.CustomResourceDefinition) bool { return c.Name == name })
		if i < 0 {
			v.fail(object, "it is not installed", "Install the chart, with crds.enabled=true, or apply the files of charts/drawbridge/files/crds.")
			continue
		}
		v.crd(object, &f.CRDs[i])
	}
	return v
}

func (v *verdict) crd(object string, crd *apiextensionsv1.CustomResourceDefinition) {
	const apply = "Apply the CustomResourceDefinitions of the chart that is installed: helm upgrade with crds.enabled=true."
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == v1alpha1.SchemeGroupVersion.Version && v.Served
	})
	switch {
	case at < 0:
		v.fail(object, fmt.Sprintf("version %s is not served", v1alpha1.SchemeGroupVersion.Version), apply)
	case !established(crd):
		v.fail(object, "the API server does not serve it: "+notEstablished(crd), "Look for another CustomResourceDefinition with the same names: kubectl get crd.")
	case !crd.Spec.Versions[at].Storage:
		v.warn(object, fmt.Sprintf("objects are not stored as %s", v1alpha1.SchemeGroupVersion.Version), apply)
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

func notEstablished(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, c := range crd.Status.Conditions {
		if c.Status == apiextensionsv1.ConditionFalse {
			return c.Message
		}
	}
	return "it has no condition Established"
}

// versions compares the parts with each other. What an upgrade leaves different for a while
// is no finding.
func versions(f *Facts) verdict {
	var v verdict
	all := skew.Versions{Plugin: f.Plugin}
	if d := f.deployment(); d != nil {
		all.Manager, all.Chart = cli.VersionsOf(d)
	}
	names := map[string]string{}
	for i := range f.CRDs {
		if present := f.CRDs[i].Labels[cli.VersionLabel]; present != "" {
			all.Definitions = append(all.Definitions, present)
			names[present] = f.CRDs[i].Name
		}
	}
	v.summary = fmt.Sprintf("plugin %s, manager %s", cmp.Or(all.Plugin, "unknown"), cmp.Or(all.Manager, "unknown"))
	for _, finding := range skew.Check(all) {
		object := ""
		if finding.Definitions != "" {
			object = "customresourcedefinition/" + names[finding.Definitions]
		}
		if finding.Supported {
			continue
		}
		v.warn(object, finding.What, finding.Do)
	}
	return v
}

// admissionPolicyNames are the chart's policies that refuse, with the effect of their
// absence.
var admissionPolicyNames = [][2]string{
	{"evictionrequest-authorization." + v1alpha1.GroupName, "nobody checks whether those who request evictions may delete the pods"},
	{"evictionrequest-status." + v1alpha1.GroupName, "anyone who may write the status of a request may end it, and the turns of its interceptors"},
	{"evictionrequest-reports." + v1alpha1.GroupName, "nobody checks who reports for a registered interceptor while no manager runs"},
	{"manager-pods." + v1alpha1.GroupName, "anyone with the token of the manager may change the spec and status of every pod"},
	{"pod-interceptors." + v1alpha1.GroupName, "pods may name interceptors in a malformed annotation, and change it"},
	{"interceptor-names." + v1alpha1.GroupName, "interceptors may be registered under names that belong to Kubernetes, which are then ignored"},
	{"reserved-interceptors." + v1alpha1.GroupName, "others may register interceptors under Drawbridge's own names"},
}

// warningPolicyNames are the chart's policies that warn, with the effect of their absence.
var warningPolicyNames = [][2]string{
	{"interceptor-selectors." + v1alpha1.GroupName, "registering an interceptor for every pod of the cluster gives no warning"},
	{"keys." + v1alpha1.GroupName, "writing a label or an annotation that does nothing gives no warning"},
}

func admissionPolicies(f *Facts) verdict {
	const reinstall = "Run helm upgrade with the values of the installation."
	var v verdict
	v.summary = fmt.Sprintf("%d, bound with Deny, and %d with Warn", len(admissionPolicyNames), len(warningPolicyNames))
	for _, policy := range warningPolicyNames {
		v.warning(f, policy[0], policy[1], reinstall)
	}
	for _, policy := range admissionPolicyNames {
		name, without := policy[0], policy[1]
		object := "validatingadmissionpolicy/" + name
		i := slices.IndexFunc(f.AdmissionPolicies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if i < 0 {
			v.fail(object, "it is missing: "+without, reinstall)
			continue
		}
		p := &f.AdmissionPolicies[i]
		if p.Status.TypeChecking != nil && len(p.Status.TypeChecking.ExpressionWarnings) > 0 {
			v.warn(object, "the API server warns of an expression: "+p.Status.TypeChecking.ExpressionWarnings[0].Warning, "Upgrade Drawbridge; if it stays, report it.")
		}
		if ptr.Deref(p.Spec.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
			v.warn(object, "its failurePolicy is Ignore: when it fails, "+without, reinstall)
		}
		v.binding(f, name, without, reinstall)
	}
	return v
}

// warning checks a policy that warns. Without it nothing wrong is admitted, so it is
// no failure.
func (v *verdict) warning(f *Facts, policy, without, reinstall string) {
	if !slices.ContainsFunc(f.AdmissionPolicies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool { return p.Name == policy }) {
		v.warn("validatingadmissionpolicy/"+policy, "it is missing: "+without, reinstall)
		return
	}
	bound := func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == policy
	}
	warns := func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return bound(b) && (denies(&b) || slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Warn))
	}
	object := "validatingadmissionpolicybinding/" + policy
	switch {
	case !slices.ContainsFunc(f.PolicyBindings, bound):
		v.warn(object, "the policy is not bound: "+without, reinstall)
	case !slices.ContainsFunc(f.PolicyBindings, warns):
		v.warn(object, "it does not warn: "+without, reinstall)
	}
}

// binding checks that a binding denies, for all objects.
func (v *verdict) binding(f *Facts, policy, without, reinstall string) {
	object := "validatingadmissionpolicybinding/" + policy
	var found *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range f.PolicyBindings {
		b := &f.PolicyBindings[i]
		if b.Spec.PolicyName != policy {
			continue
		}
		if found == nil || denies(b) {
			found = b
		}
	}
	switch {
	case found == nil:
		v.fail(object, "the policy is not bound: "+without, reinstall)
	case !denies(found):
		v.fail("validatingadmissionpolicybinding/"+found.Name, "it does not deny: "+without, reinstall)
	case found.Spec.MatchResources != nil:
		v.warn("validatingadmissionpolicybinding/"+found.Name, "it is limited by matchResources: elsewhere, "+without, reinstall)
	}
}

func denies(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
}

// leaderLease is the name of the lease of the leader.
const leaderLease = "drawbridge-leader"

func replicas(f *Facts) verdict {
	var v verdict
	d := f.deployment()
	if d == nil {
		v.summary = "the manager runs outside of this cluster"
		if c := f.configuration(); c == nil || !elsewhere(c) {
			v.fail("deployment/"+f.Namespace, fmt.Sprintf("there is no Deployment of Drawbridge in the namespace %s", f.Namespace),
				"Install the chart, or say by --drawbridge-namespace where it is.")
		}
		return v
	}
	object := fmt.Sprintf("deployment/%s/%s", d.Namespace, d.Name)
	v.summary = fmt.Sprintf("%d of %d ready", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
	for i := range f.Deployments {
		if other := &f.Deployments[i]; other.Namespace != d.Namespace {
			v.warn(fmt.Sprintf("deployment/%s/%s", other.Namespace, other.Name), "it is a second installation: both act on all pods of the cluster", "Uninstall one of them.")
		}
	}
	v.ready(f, d, object)
	v.skew(f, object)
	v.leader(f)
	return v
}

// elsewhere reports whether the configuration calls a manager by URL.
func elsewhere(c *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.ClientConfig.URL != nil })
}

func (v *verdict) ready(f *Facts, d *appsv1.Deployment, object string) {
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	look := fmt.Sprintf("See docs/runbooks/webhook-down.md; kubectl -n %s describe pods, and kubectl -n %s logs deployment/%s.", d.Namespace, d.Namespace, d.Name)
	why := notReady(f.ManagerPods)
	switch {
	case wanted == 0:
		v.fail(object, "it is scaled to 0: nobody answers", fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=2", d.Namespace, d.Name))
	case d.Status.ReadyReplicas == 0:
		v.fail(object, "no replica is ready"+why, look)
	case d.Status.ReadyReplicas < wanted:
		v.warn(object, fmt.Sprintf("%d of %d replicas are ready%s", d.Status.ReadyReplicas, wanted, why), look)
	case d.Status.UnavailableReplicas > 0:
		v.warn(object, "a rollout is not finished"+why, "Wait a moment. If it stays: "+look)
	case wanted == 1:
		v.warn(object, "there is one replica: while it restarts, nobody answers", "Set deployment.replicas=2 or more.")
	}
}

// notReady says why the first unready pod is not ready.
func notReady(pods []corev1.Pod) string {
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if waiting := c.State.Waiting; waiting != nil && !c.Ready {
				return fmt.Sprintf(": pod %s waits (%s)", pods[i].Name, strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": "))
			}
		}
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return fmt.Sprintf(": pod %s is not scheduled (%s)", pods[i].Name, c.Message)
			}
		}
	}
	return ""
}

// skew checks for replicas with different versions.
func (v *verdict) skew(f *Facts, object string) {
	var images []string
	for i := range f.ManagerPods {
		pod := &f.ManagerPods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			if id := cmp.Or(c.ImageID, c.Image); c.Name == managerContainer && id != "" && !slices.Contains(images, id) {
				images = append(images, id)
			}
		}
	}
	if len(images) < 2 {
		return
	}
	slices.Sort(images)
	v.warn(object, "the replicas run different images: "+strings.Join(images, ", "),
		"Wait for the rollout to end. If all claim the same tag, the tag has moved: set image.digest or another tag.")
}

// leader checks that a replica runs the controllers.
func (v *verdict) leader(f *Facts) {
	if !f.settings().leaderElect {
		return
	}
	object := fmt.Sprintf("lease/%s/%s", f.Namespace, leaderLease)
	const look = "Look at the logs of the replicas: a leader needs the permission to write this lease, and a ready API server."
	l := f.Lease
	if l == nil || ptr.Deref(l.Spec.HolderIdentity, "") == "" {
		v.fail(object, "no replica leads: requests make no progress, and certificates are not renewed", look)
		return
	}
	if l.Spec.RenewTime == nil {
		return
	}
	end := l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 15)) * time.Second)
	// Clocks differ; a lease that just expired may be about to be taken over.
	if late := f.Now.Sub(end); late > time.Minute {
		v.fail(object, fmt.Sprintf("the leader %s has not renewed it for %s", *l.Spec.HolderIdentity, duration.HumanDuration(f.Now.Sub(l.Spec.RenewTime.Time))), look)
	}
}
