package webhook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// member is db0's successor in its StatefulSet.
func member(node string) *builder.PodWrapper {
	return db0().UID("uid-2").OwnedBy("StatefulSet", "db").Node(node)
}

func known(markers ...string) func(*Input) {
	return func(in *Input) { in.Node = translate.NodeView{Known: true, Markers: markers} }
}

func seen(in *Input)    { in.LivePredecessor = true }
func expired(in *Input) { in.LeftLease = LeftLease{} }

// by makes it another kind of caller under the same name.
func by(class translate.CallerClass) func(*Input) {
	return func(in *Input) {
		input := map[translate.CallerClass]translate.CallerInput{
			translate.ClassDescheduler: {Username: "alice", Manager: "descheduler"},
			translate.ClassDrainHelper: {Username: "alice", Manager: "node-maintenance-operator"},
		}
		in.Call.Caller = translate.Recognize(input[class])
	}
}

func TestDecideAboutReplacements(t *testing.T) {
	ended := func(ago time.Duration) *builder.EvictionRequestWrapper {
		return er().Evicted(v1alpha1.ReasonPodDeleted, t0.Add(-ago))
	}
	gone := func() *builder.EvictionRequestWrapper { return ended(10 * time.Second) }
	notifiedTo := func(names string) *builder.EvictionRequestWrapper {
		return gone().Annotation(v1alpha1.NotifiedAnnotation, names)
	}
	of := func(node string) got {
		return got{outcome: "not_found", reason: "replacement", left: "n1", action: "Tell",
			message: `the pod already left node "n1"; its replacement on node "` + node + `" is not evicted`}
	}
	tolerant := func(node string) *builder.PodWrapper { return member(node).Tolerate() }
	wish := deniedAccepted().after(ActApply)
	left := got{outcome: "not_found", reason: "left", message: `the pod already left node "n1"`, action: "Tell"}

	cases := map[string]struct {
		in   Input
		want got
	}{
		"it is looked at itself":                   {with(after(gone()), cached), needs(NeedLivePod)},
		"its node is looked at":                    {after(gone()), needs(NeedLiveNode)},
		"the predecessor's request is looked at":   {with(after(gone()), known()), needs(NeedPredecessor)},
		"on a node nobody drains":                  {with(after(gone()), known(), seen), of("n2")},
		"on a node that is gone":                   {with(after(gone()), seen, func(in *Input) { in.Node = translate.ViewNode(nil) }), of("n2")},
		"nobody intercepts it":                     {with(after(gone()), known(), seen, plain), of("n2")},
		"without a node":                           {with(after(gone()), seen, as(db0().UID("uid-2").Node("").Phase(corev1.PodPending))), got{outcome: "not_found", reason: "replacement", message: `the pod already left node "n1"; its replacement without a node is not evicted`, left: "n1", action: "Tell"}},
		"pending on the node":                      {with(after(gone()), seen, as(member("n1").Phase(corev1.PodPending))), of("n1")},
		"on its way out, too":                      {with(after(gone()), seen, as(member("n1").Deleting(t0))), of("n1")},
		"a dry run":                                {with(after(gone()), dryRun, known(), seen), warned("404: " + of("n2").message)},
		"the controller has not noticed its end":   {with(after(er().Processed(interA, interB).Active(evictor, t0)), known(), seen), of("n2")},
		"the call has a UID":                       {with(after(gone()), withUID), wish},
		"somebody else's request":                  {with(after(gone()), func(in *Input) { in.Call.Caller.Requester = "bob.users.drawbridge.dev" }), wish},
		"the first pod was never evicted":          {after(er().Canceled(v1alpha1.ReasonNoRequesters, t0)), wish},
		"the node it left is not known":            {after(gone().NodeName("")), wish},
		"the guard is off":                         {with(after(gone()), func(in *Input) { in.Replacement = ReplacementEvict }), wish},
		"at the end of the window":                 {after(ended(15 * time.Minute)), needs(NeedLiveNode)},
		"after the window":                         {after(ended(15*time.Minute + 1)), wish},
		"the lease of the first drain has run out": {with(after(gone()), expired), wish},
		"the first request knows no lease":         {with(after(builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").NodeName("n1").Requesters(alice).Evicted(v1alpha1.ReasonPodDeleted, t0)), expired, known(), seen), of("n2")},
		"a caller that asks once":                  {with(after(gone()), by(translate.ClassDescheduler)), wish},
		"it was asked for, too":                    {with(after(gone()), func(in *Input) { in.Request = second(alice) }), deniedWaiting()},
		"it was asked for by somebody else":        {with(after(gone()), known(), seen, func(in *Input) { in.Request = second("bob.users.drawbridge.dev") }), of("n2")},

		// On the same node.
		"on the same node, whose cordon it tolerates":              {with(after(gone()), seen, as(tolerant("n1"))), of("n1")},
		"on the same node, which nobody drains":                    {with(after(gone()), seen, as(member("n1"))), of("n1")},
		"on the same node, an hour later, while the drain goes on": {with(after(ended(time.Hour)), seen, as(tolerant("n1"))), of("n1")},
		"on the same node, the drain is over":                      {with(after(gone()), expired, as(tolerant("n1"))), wish},
		"on the same node, made anew by hand":                      {with(after(gone()), as(db0().UID("uid-2"))), wish},
		"on the same node, the end of the first was told":          {with(after(notifiedTo(alice)), as(tolerant("n1"))), wish},

		// On another node that is drained.
		"on a node that is drained since":                  {with(after(gone()), as(member("n2")), known("unschedulable")), wish},
		"on a node that was drained before":                {with(after(gone()), seen, as(tolerant("n2")), known("unschedulable")), of("n2")},
		"on a node with a marker that keeps nobody away":   {with(after(gone()), seen, as(member("n2")), known("deleting")), of("n2")},
		"on a node that was drained before, after a pause": {with(after(ended(31*time.Second)), as(tolerant("n2")), known("unschedulable")), wish},
		"on a node that was drained before, asked long before": {with(after(gone()), as(tolerant("n2")), known("unschedulable"), func(in *Input) {
			in.LeftLease.HeardAt = t0.Add(-71 * time.Second)
		}), wish},
		"on a node with a taint it does not tolerate": {with(after(gone()), as(member("n2").Change(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
		})), known("medik8s.io/drain", "unschedulable")), wish},

		// Told.
		"the end was told":                            {after(notifiedTo(alice)), wish},
		"the end was told to others":                  {with(after(notifiedTo("bob.users.drawbridge.dev")), known(), seen), of("n2")},
		"the end was told to several":                 {after(notifiedTo(alice + ",bob.users.drawbridge.dev")), wish},
		"the end of the one before was told":          {with(after(notifiedTo(alice), gone().UID("er-0").Name("uid-0")), known(), seen), of("n2")},
		"the latest end was told, not the one before": {after(notifiedTo(alice), second0(ended(time.Minute))), wish},

		// The guard denies.
		"the guard denies, which needs no live look": {with(after(gone()), known(), cached, func(in *Input) { in.Replacement = ReplacementTooManyRequests }), got{
			outcome: "denied", reason: "replacement", left: "n1",
			message: "Eviction could not be coordinated yet: the pod already left its node and a replacement has its name, retry later"}},
		"the guard does not deny on the same node": {with(after(gone()), as(tolerant("n1")), func(in *Input) { in.Replacement = ReplacementTooManyRequests }), wish},

		// Nothing has the name.
		"nothing has the name, the first request is looked at": {with(after(gone()), func(in *Input) { in.Pod = nil }), needs(NeedPredecessor)},
		"nothing has the name":                                 {with(after(gone()), seen, func(in *Input) { in.Pod = nil }), left},
		"nothing has the name, in a dry run":                   {with(after(gone()), seen, dryRun, func(in *Input) { in.Pod = nil }), warned("404: " + left.message)},
		"nothing has the name, which was told":                 {with(after(notifiedTo(alice)), func(in *Input) { in.Pod = nil }), allowed("pod-not-found")},
		"nothing has the name, nor will":                       {with(after(gone().Label("pod-template-hash", "5d")), func(in *Input) { in.Pod = nil }), allowed("pod-not-found")},
		"nothing has the name, the guard is off":               {with(after(gone()), func(in *Input) { in.Pod, in.Replacement = nil, ReplacementTooManyRequests }), allowed("pod-not-found")},

		// The pod itself ends.
		"a failed pod that keeps its name": {during(er().Evicted(v1alpha1.ReasonPodTerminal, t0), live, as(db0().OwnedBy("StatefulSet", "db").Phase(corev1.PodFailed))),
			allowed("pod-terminal").after(ActNotifyEnd)},
		"a failed pod that keeps its name, again": {during(notifiedTo(alice), live, as(db0().OwnedBy("StatefulSet", "db").Phase(corev1.PodFailed))), allowed("pod-terminal")},
		"a failed pod of somebody else's request": {during(gone(), live, as(db0().OwnedBy("StatefulSet", "db").Phase(corev1.PodFailed)), func(in *Input) { in.Call.Caller.Requester = "bob.users.drawbridge.dev" }),
			allowed("pod-terminal")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			decision := Decide(tc.in)
			if diff := cmp.Diff(tc.want, inWords(decision), cmp.AllowUnexported(got{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// second is the running request for the replacement, wanted by somebody.
func second(requester string) *v1alpha1.EvictionRequest {
	return builder.EvictionRequest("shop", "db-0", "uid-2").UID("er-2").NodeName("n2").Interceptors(interA, interB).
		Active(interA, t0).Leased(requester, leaseN1).Obj()
}

// second0 makes it the request of a pod that was there earlier.
func second0(w *builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
	w.Name("uid-0").UID("er-0").Spec.Target.Pod.UID = "uid-0"
	return w
}
