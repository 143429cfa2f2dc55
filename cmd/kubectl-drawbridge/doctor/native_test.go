package doctor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// natively are the facts of a cluster that serves the API, and a manager with these arguments.
func natively(args ...string) Facts {
	f := fine()
	f.NativeServed = true
	c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
	c.Args = append(c.Args, args...)
	f.Native = f.settings().native != charge.Off
	return f
}

func TestWhoMovesNativeEvictions(t *testing.T) {
	with := func(state charge.State, args ...string) Facts {
		f := natively(args...)
		f.InCharge = &state
		return f
	}
	changed := func(f Facts, change func(*Facts)) Facts {
		change(&f)
		return f
	}
	unseen := func(f Facts, ages ...time.Duration) Facts {
		for _, age := range ages {
			f.Unseen = append(f.Unseen, lifecyclev1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "of-" + age.String(), CreationTimestamp: metav1.NewTime(t0.Add(-age))}})
		}
		return f
	}
	const auto, theirs, off = "--native-controllers=Auto", "--native-controllers=Cluster", "--native-controllers=Off"
	ours := charge.State{InCharge: charge.Drawbridge, Since: t0.Add(-time.Hour), Because: "Nobody else was seen."}
	other := charge.State{InCharge: charge.Cluster, Since: t0.Add(-time.Hour), Because: "evictionrequest-controller wrote the status of Eviction shop/pod-1-web."}
	responding := []corev1.Pod{*builder.Pod("shop", "web").Obj(), *builder.Pod("shop", "db-0").Responders("a.example.com/a").Obj()}
	for name, tc := range map[string]struct {
		facts    Facts
		summary  string
		findings []string
	}{
		"where it is not served":                       {facts: fine(), summary: "not served, so only Drawbridge's own API counts"},
		"Drawbridge":                                   {facts: with(ours, auto), summary: "served, and Drawbridge moves its Evictions since 60m ago"},
		"the cluster, as the values say":               {facts: with(other, theirs), summary: "served, and the cluster moves its Evictions (native.controllers is Cluster)"},
		"nobody, as the values say":                    {facts: natively(off), summary: "served, and native.controllers is Off"},
		"nobody, as the feature gate says":             {facts: natively(auto, "--feature-gates=NativeAPI=false"), summary: "served, and native.controllers is Off"},
		"it is not known, without a Deployment":        {facts: changed(natively(auto), func(f *Facts) { f.Deployments = nil }), summary: "served; there is no Deployment that says what Drawbridge does with it"},
		"Drawbridge, without a Deployment":             {facts: changed(with(ours), func(f *Facts) { f.Deployments = nil }), summary: "served, and Drawbridge moves its Evictions since 60m ago"},
		"what has just been asked for has time":        {facts: unseen(with(ours, auto), time.Minute), summary: "served, and Drawbridge moves its Evictions since 60m ago"},
		"nobody, although pods count on it":            {facts: changed(natively(off), func(f *Facts) { f.Pods = responding }), findings: []string{"WARN pod/shop/db-0: there is 1 pod, this one the first, with spec.evictionResponders, and Drawbridge does not look at the API: drains bypass the responders"}},
		"nobody yet":                                   {facts: natively(auto, "--native-state=x-native"), findings: []string{"WARN configmap/drawbridge-system/x-native: it is not there, so nobody moves native Evictions yet"}},
		"another one has taken it":                     {facts: with(other, auto), findings: []string{"WARN configmap/drawbridge-system/drawbridge-native: since 60m ago another controller moves native Evictions, and native.controllers is Auto: evictionrequest-controller wrote the status of Eviction shop/pod-1-web."}},
		"another one, although Drawbridge should":      {facts: with(other, "--native-controllers=Drawbridge"), findings: []string{"WARN configmap/drawbridge-system/drawbridge-native: since 60m ago another controller moves native Evictions, and native.controllers is Drawbridge: evictionrequest-controller wrote the status of Eviction shop/pod-1-web."}},
		"nobody, since what is remembered is nonsense": {facts: with(charge.State{InCharge: charge.Cluster}, auto), findings: []string{"WARN configmap/drawbridge-system/drawbridge-native: what it says cannot be read, so Drawbridge does not touch native Evictions"}},
		"the cluster should, and does not":             {facts: unseen(with(other, theirs), time.Minute, 3*time.Minute, 5*time.Minute), findings: []string{"WARN evictionrequest.lifecycle.k8s.io/shop/of-5m0s: 2 native EvictionRequests have no status, the oldest since 5m: nobody moves native Evictions"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := only(t, tc.facts, "native-api")
			if diff := cmp.Diff(tc.findings, brief(got)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got.Summary != tc.summary {
				t.Errorf("summary %q, want %q", got.Summary, tc.summary)
			}
		})
	}
}

func TestThePermissionsForTheNativeAPI(t *testing.T) {
	count := func(f Facts) (n int) {
		for _, need := range Needs(&f) {
			if need.Group == lifecyclev1alpha1.GroupName || need.Resource == "configmaps" && need.Name == "drawbridge-native" {
				n++
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		facts Facts
		want  int
	}{
		"where it is not served": {fine(), 0},
		"where it is":            {natively("--native-controllers=Auto"), 5},
		"where it is Off":        {natively("--native-controllers=Off"), 0},
	} {
		if got := count(tc.facts); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
