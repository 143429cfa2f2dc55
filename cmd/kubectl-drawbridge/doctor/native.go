package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
)

// nativeUnseen is how long a native EvictionRequest may be without a status: whoever is in charge
// writes one within seconds.
const nativeUnseen = 2 * time.Minute

// nativeAPI looks at who moves the Evictions of Kubernetes' own API.
func nativeAPI(f *Facts) verdict {
	var v verdict
	s := f.settings()
	switch {
	case !f.NativeServed:
		v.summary = "not served, so only Drawbridge's own API counts"
		return v
	case s.native == charge.Off:
		v.summary = "served, and native.controllers is Off"
		named := slices.DeleteFunc(slices.Clone(f.Pods), func(p corev1.Pod) bool { return len(p.Spec.EvictionResponders) == 0 })
		if len(named) > 0 {
			v.warn("pod/"+named[0].Namespace+"/"+named[0].Name, fmt.Sprintf("%s, this one the first, with spec.evictionResponders, and Drawbridge does not look at the API: drains bypass the responders", have(len(named))),
				"If that is not meant, set native.controllers=Auto, and leave the feature gate NativeAPI on.")
		}
		return v
	case !s.known && f.InCharge == nil:
		v.summary = "served; there is no Deployment that says what Drawbridge does with it"
		return v
	}
	v.summary = "served, and the cluster moves its Evictions (native.controllers is Cluster)"
	if s.native != charge.Cluster {
		f.inCharge(&v, s)
	}
	f.unseenNative(&v)
	return v
}

func have(n int) string {
	if n == 1 {
		return "there is 1 pod"
	}
	return fmt.Sprintf("there are %d pods", n)
}

// inCharge looks at what is remembered, where Drawbridge may move Evictions.
func (f *Facts) inCharge(v *verdict, s settings) {
	object := "configmap/" + f.Namespace + "/" + s.nativeState
	state := f.InCharge
	switch {
	case state == nil:
		v.warn(object, "it is not there, so nobody moves native Evictions yet",
			fmt.Sprintf("Wait half a minute. If it stays so, no replica leads (see \"replicas\"), or the leader's log says why it does not take charge: kubectl -n %s logs deployment/%s", f.Namespace, f.deployment().Name))
	case state.InCharge == charge.Drawbridge:
		v.summary = fmt.Sprintf("served, and Drawbridge moves its Evictions since %s ago", duration.HumanDuration(f.Now.Sub(state.Since)))
	case state.Because == "":
		v.warn(object, "what it says cannot be read, so Drawbridge does not touch native Evictions",
			fmt.Sprintf("Delete it while Drawbridge runs: kubectl -n %s delete configmap %s", f.Namespace, s.nativeState))
	default:
		v.warn(object, fmt.Sprintf("since %s ago another controller moves native Evictions, and native.controllers is %s: %s", duration.HumanDuration(f.Now.Sub(state.Since)), cmp.Or(string(s.native), "not known"), text.Clean(state.Because)),
			fmt.Sprintf("If the cluster has controllers of its own, set native.controllers=Cluster. If not, switch the other one off, and give the Evictions back: kubectl -n %s delete configmap %s", f.Namespace, s.nativeState))
	}
}

// unseenNative are native EvictionRequests that nobody has looked at.
func (f *Facts) unseenNative(v *verdict) {
	old := slices.DeleteFunc(slices.Clone(f.Unseen), func(r lifecyclev1alpha1.EvictionRequest) bool {
		return f.Now.Sub(r.CreationTimestamp.Time) < nativeUnseen
	})
	if len(old) == 0 {
		return
	}
	oldest := slices.MinFunc(old, func(a, b lifecyclev1alpha1.EvictionRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	v.warn("evictionrequest.lifecycle.k8s.io/"+oldest.Namespace+"/"+oldest.Name,
		fmt.Sprintf("%s, the oldest since %s: nobody moves native Evictions", withoutStatus(len(old)), duration.HumanDuration(f.Now.Sub(oldest.CreationTimestamp.Time))),
		"With native.controllers=Cluster, see whether the cluster has these controllers: Kubernetes 1.37 has none. Otherwise see \"replicas\", and the leader's log.")
}

func withoutStatus(n int) string {
	if n == 1 {
		return "1 native EvictionRequest has no status"
	}
	return fmt.Sprintf("%d native EvictionRequests have no status", n)
}

// nativeNeeds are the manager's permissions for that API.
func nativeNeeds(s settings) []Need {
	needs := []Need{
		{Resource: "evictionrequests", Verbs: []string{"list", "watch", "create", "update"}},
		{Resource: "evictionrequests/status", Verbs: []string{"update"}},
		{Resource: "evictions", Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
		{Resource: "evictions/status", Verbs: []string{"update", "patch"}},
	}
	for i := range needs {
		needs[i].Group, needs[i].For = lifecyclev1alpha1.GroupName, "native Evictions"
	}
	return append(needs, Need{Resource: "configmaps", Verbs: []string{"get", "update"}, Name: s.nativeState, Here: true, For: "knowing who moves native Evictions"})
}
