package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	writes "github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestVerdicts(t *testing.T) {
	active := func(name string, since time.Duration) *builder.EvictionRequestWrapper {
		return planned().Active(name, ago(since))
	}
	held := func() *builder.EvictionRequestWrapper {
		er := planned().Processed(interA)
		er.DeletionTimestamp, er.Finalizers = &metav1.Time{Time: ago(3 * time.Minute)}, []string{"example.com/audit"}
		return er
	}
	imperative := func(retries int32) *builder.EvictionRequestWrapper {
		er := planned().Processed(interA, interB).Active(last, ago(time.Minute))
		if retries > 0 {
			er.Refused(retries, "web")
		}
		return er
	}
	cases := map[string]struct {
		facts    Facts
		want     Verdict
		headline string
		answer   string
		evicts   bool
	}{
		"nothing is in the way":              {facts(pod()), VerdictNothingBlocks, "Nothing blocks the pod", "evicted", true},
		"something unknown is in the way":    {facts(pod(), answering(&DryRun{Result: translate.ResultWebhook, Detail: "no"})), VerdictNothingBlocks, "the eviction is refused: no.", "refused (webhook): no", false},
		"you may not evict":                  {facts(pod(), answering(&DryRun{Result: translate.ResultForbidden, Detail: "forbidden"})), VerdictNothingBlocks, "As far as you may look, nothing blocks", "not known to you: forbidden", false},
		"a budget":                           {facts(pod(), withBudgets(*budget(0).Obj()), answering(refusal)), VerdictBudgetBlocks, "budget db refuses", "refused (budget): The disruption budget", false},
		"a budget that can never allow":      {facts(pod(), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)), VerdictBudgetNeverAllows, "budget db can never allow a disruption (minAvailable is 2 of 2 pods)", "refused (budget): The disruption budget", false},
		"a budget of more pods":              {facts(pod(), withBudgets(*budget(0).Obj()), withPeers(2), answering(refusal)), VerdictBudgetBlocks, "budget db refuses", "refused (budget): The disruption budget", false},
		"a budget that allows":               {facts(pod(), withBudgets(*budget(1).Obj())), VerdictNothingBlocks, "Nothing blocks", "evicted", true},
		"a budget of other pods":             {facts(pod().Label("app", "web"), withBudgets(*budget(0).Obj())), VerdictNothingBlocks, "Nothing blocks", "evicted", true},
		"two budgets":                        {facts(pod(), withBudgets(*budget(1).Obj(), *builder.Budget("shop", "all").SelectsAll().Allows(1).Obj())), VerdictSeveralBudgets, "2 budgets select the pod (all, db)", "evicted", true},
		"interceptors, and nobody has asked": {facts(pod().Interceptors(interA, interB), answering(warned)), VerdictWouldIntercept, "a.example.com, then b.example.com come first", "429: Eviction triggered evacuation: accepted", false},
		"a request that may not be written":  {facts(pod().Interceptors(interA), answering(warned), refusedAt(writes.Request, writes.Quota, ago(time.Minute))), VerdictWriteRefused, "The pod's eviction cannot be requested. Drawbridge cannot write the EvictionRequest: a quota of the namespace refuses it: exceeded quota", "429: Eviction could not be coordinated yet: a quota of the namespace refuses the request, retry", false},
		"a pod of a DaemonSet":               {facts(builder.Pod("shop", "db-0").Node("node-1").DaemonSet("agent").Ready()), VerdictDaemonSet, "belongs to DaemonSet/agent", "evicted", true},
		"a static pod":                       {facts(pod().Mirror()), VerdictMirrorPod, "static pod", "", true},
		"a pod without a node":               {facts(builder.Pod("shop", "db-0").Phase(corev1.PodPending)), VerdictNotScheduled, "on no node", "evicted", true},
		"a pod that has ended":               {facts(pod().Phase(corev1.PodFailed)), VerdictFinished, "has ended (Failed)", "evicted", true},
		"a pod that is being deleted":        {facts(pod().Deleting(now.Add(20 * time.Second))), VerdictTerminating, "ends in 20s", "", true},
		"a pod that finalizers hold":         {facts(pod().Finalizer("example.com/x").Deleting(ago(time.Hour))), VerdictStuckTerminating, "Finalizers hold it: example.com/x.", "", true},
		"a pod whose node is away":           {facts(pod().Deleting(ago(time.Hour)), func(f *Facts) { f.Node = builder.Node("node-1").Ready(corev1.ConditionUnknown).Obj() }), VerdictStuckTerminating, "Its node is not ready", "", true},
		"a pod that does not end":            {facts(pod().Deleting(ago(time.Hour))), VerdictStuckTerminating, "should have ended 60m ago, and has not.", "", true},

		"a request that nobody has looked at yet":     {facts(pod(), with(evictionRequest().Created(ago(time.Second)))), VerdictNotPlanned, "in a moment", "evicted: ", true},
		"a request that nobody looks at":              {facts(pod().Interceptors(interA), with(evictionRequest()), answering(warned)), VerdictNotPlanned, "no manager has processed it", "429: ", false},
		"an interceptor that has just got its turn":   {facts(pod(), with(active(interA, time.Minute)), answering(waits)), VerdictInterceptorWorks, "Interceptor a.example.com (1 of 3) has its turn.", `429: Eviction triggered evacuation: waiting for interceptor "a.example.com" (1 of 3)`, false},
		"a hook that has its turn":                    {facts(pod(), with(hookTurn()), withHook(v1alpha1.HookRunning), answering(warned)), VerdictWaitsForHook, "Hook dump (1 of 2) waits for its condition: attempt 1 of 3", "429: ", false},
		"an EvictionBudget that keeps it":             {facts(pod().Label("zone", "a"), withEvictionBudgets(zones().Group("b", 4, 1, 0)), answering(warned)), VerdictWaitsForBudget, "The eviction waits for EvictionBudget db (2 of 3)", "429: ", false},
		"a hook that has failed":                      {facts(pod(), with(hookTurn()), withHook(v1alpha1.HookHeld), answering(warned)), VerdictHeldByHook, "Hook dump (1 of 2) keeps the pod, because its last attempt failed (attempt 1 of 3)", "429: ", false},
		"an interceptor that was never heard of":      {facts(pod(), with(active(interA, 5*time.Minute)), answering(warned)), VerdictInterceptorSilent, "got its turn 5m ago and has never reported", "429: ", false},
		"an interceptor that fell silent":             {facts(pod(), with(active(interA, 9*time.Minute).Started(interA, ago(8*time.Minute))), answering(warned)), VerdictInterceptorSilent, "last reported 8m ago", "429: ", false},
		"an interceptor that may be silent for a day": {facts(pod(), with(active(interA, 8*time.Hour).HeartbeatDeadline(interA, 24*time.Hour)), answering(warned)), VerdictInterceptorWorks, "has its turn", "429: ", false},
		"one that was for half of it":                 {facts(pod(), with(active(interA, 12*time.Hour).HeartbeatDeadline(interA, 24*time.Hour)), answering(warned)), VerdictInterceptorSilent, "has never reported", "429: ", false},
		"an interceptor that is late": {facts(pod(), with(active(interA, 9*time.Minute).Started(interA, ago(time.Minute)).Report(interA, func(s *v1alpha1.InterceptorStatus) {
			s.ExpectedFinishTime, s.Message = &metav1.Time{Time: ago(3 * time.Minute)}, "90 %"
		})), answering(warned)), VerdictInterceptorLate, "expected to be done 3m ago: 90 %.", "429: ", false},
		"a request that is held":     {facts(pod(), with(held()), answering(foretold(`429: Eviction triggered evacuation: its request is being deleted, but finalizer "example.com/audit" holds it`))), VerdictRequestHeld, "deleted 3m ago, and finalizers hold it: example.com/audit.", `429: Eviction triggered evacuation: its request is being deleted, but finalizer "example.com/audit" holds it`, false},
		"the last stage":             {facts(pod(), with(imperative(0))), VerdictEvicting, "evicted in a moment", "evicted", true},
		"a budget in the last stage": {facts(pod(), with(imperative(3)), withBudgets(*budget(0).Obj()), answering(refusal)), VerdictEvictionBlocked, "budget db refuses the eviction (3 tries so far)", "refused (budget)", false},
		"failures in the last stage": {facts(pod(), with(imperative(2)), answering(&DryRun{Result: translate.ResultWebhook, Detail: "no"})), VerdictEvictionFails, "failed 2 times", "refused (webhook): no", false},
		"one that can never allow":   {facts(pod(), with(imperative(3)), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)), VerdictBudgetNeverAllows, "All interceptors are done; budget db can never allow a disruption (minAvailable is 2 of 2 pods).", "refused (budget)", false},
		"one that lets it go by consent": {facts(pod(), with(imperative(3).Report(last, func(s *v1alpha1.InterceptorStatus) {
			s.ExpectedFinishTime = &metav1.Time{Time: ago(-30 * time.Minute)}
		})), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)), VerdictBudgetNeverAllows, "An EvictionBudget has the pod deleted in spite of it.", "refused (budget)", false},
		"the guard in the last stage": {facts(pod(), with(imperative(0)), withBudgets(guard()), answering(refusal)), VerdictGuardHolds, "guard keeps the pod", "refused", false},
		"the guard, held by a policy": {facts(pod(), with(imperative(0)), withBudgets(guard()), answering(refusal), func(f *Facts) {
			f.Events = []eventsv1.Event{{Reason: "GuardHeld", Note: "The pod is not evicted, its guard stays closed: EvacuationPolicy db keeps the pod."}}
		}), VerdictGuardHolds, "guard keeps the pod. The pod is not evicted, its guard stays closed: EvacuationPolicy db keeps the pod.", "refused", false},
		"the guard while interceptors work":                          {facts(pod(), with(active(interA, time.Minute)), withBudgets(guard()), answering(refusal)), VerdictInterceptorWorks, "has its turn", "refused (budget): ", false},
		"a request that was canceled":                                {facts(pod(), with(planned().Canceled(v1alpha1.ReasonNoRequesters, ago(time.Minute))), answering(warned)), VerdictCanceled, "canceled 60s ago", "429: Eviction triggered evacuation: accepted", false},
		"one that was canceled, of a pod that nobody intercepts now": {facts(pod(), with(planned().Canceled(v1alpha1.ReasonNoRequesters, ago(time.Minute)))), VerdictCanceled, "canceled 60s ago", "evicted: ", true},
		"an interceptor works, and the webhook is not asked":         {facts(pod(), with(active(interA, time.Minute)), asked("it is gone", "")), VerdictInterceptorWorks, "has its turn", "evicted at once, bypassing the interceptors", true},
		"the webhook is not asked":                                   {facts(pod().Interceptors(interA), asked("namespace shop is excluded", "")), VerdictWebhookNotAsked, "a.example.com should come first, but an eviction call bypasses them: namespace shop is excluded.", "evicted at once", true},
		"it is not known whether it is":                              {facts(pod().Interceptors(interA), asked("", "forbidden")), VerdictWebhookNotAsked, "which could not be learned: forbidden", "evicted at once", true},
		"the webhook is not asked, and a budget can never allow":     {facts(pod().Interceptors(interA), asked("it is gone", ""), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)), VerdictWebhookNotAsked, "Budget db can never allow a disruption (minAvailable is 2 of 2 pods).", "refused (budget)", false},
		"the webhook is not asked, and a budget refuses":             {facts(pod().Interceptors(interA), asked("it is gone", ""), withBudgets(*budget(0).Obj()), answering(refusal)), VerdictWebhookNotAsked, "Budget db refuses it at present.", "refused (budget)", false},
		"interceptors that have nothing to do":                       {facts(pod().Interceptors(interA), asked("", "")), VerdictNothingBlocks, "its interceptors have nothing to do for it now", "evicted at once", true},
		"interceptors that you cannot see":                           {facts(pod(), answering(warned)), VerdictWouldIntercept, "interceptors that you cannot see", "429: ", false},
		"a maintenance waits for the owner":                          {facts(toldToGo(), underMaintenance(new(3*time.Minute), builder.NodeMaintenance("kernel").Drain())), VerdictLeftToOwner, "NodeMaintenance kernel leaves the pod to its owner for 3m0s (maintenance.evacuationWait), and requests its eviction in 2m.", "evicted: ", true},
		"a maintenance waits, nobody knows how long":                 {facts(toldToGo(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain())), VerdictLeftToOwner, "since 60s ago, for as long as maintenance.evacuationWait says, which could not be read", "evicted: ", true},
		"a maintenance has waited":                                   {facts(toldToGo(), underMaintenance(new(time.Second), builder.NodeMaintenance("kernel").Drain())), VerdictLeftToOwner, "requests its eviction in a moment", "evicted: ", true},
		"the owner moves it":                                         {facts(toldToGo(corev1.PodCondition{Type: v1alpha1.PodEvacuationInitiated, Status: corev1.ConditionTrue, Reason: "Moving"}), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain())), VerdictLeftToOwner, "who says that it moves it (condition EvacuationInitiated, reason Moving)", "evicted: ", true},
		"the owner cannot":                                           {facts(toldToGo(corev1.PodCondition{Type: v1alpha1.PodEvacuationInitiated, Status: corev1.ConditionFalse, Reason: "No"}), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain())), VerdictNothingBlocks, "Nothing blocks the pod", "evicted: ", true},
		"a maintenance evicts it in a later wave":                    {facts(pod(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Wave("db", "app", "db"))), VerdictWaitsForWave, "NodeMaintenance kernel evicts the pod in wave db (1 of 1), which has not begun on node node-1: pods that go before all waves are still there.", "evicted: ", true},
		"also with interceptors":                                     {facts(pod().Interceptors(interA), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Wave("all", "app", "db").Wave("db", "app", "db")), begunWave("kernel=all@2026-06-01T12:00:00Z"), answering(warned)), VerdictWaitsForWave, "in wave db (2 of 2), which has not begun on node node-1: pods of wave all or of earlier ones are still there.", "429: ", false},
		"the wave has begun":                                         {facts(pod(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Wave("db", "app", "db")), begunWave("kernel=db@2026-06-01T12:00:00Z")), VerdictNothingBlocks, "Nothing blocks", "evicted: ", true},
		"another maintenance has no order":                           {facts(pod(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Wave("db", "app", "db"), builder.NodeMaintenance("disks").Drain())), VerdictNothingBlocks, "Nothing blocks", "evicted: ", true},
		"a maintenance evicts pods of DaemonSets last":               {facts(ofDaemonSet(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().AnyWave(daemons))), VerdictWaitsForWave, "NodeMaintenance kernel evicts the pod in wave daemons (1 of 1), which has not begun on node node-1", "evicted: ", true},
		"that wave has begun":                                        {facts(ofDaemonSet(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().AnyWave(daemons)), begunWave("kernel=daemons@2026-06-01T12:00:00Z")), VerdictDaemonSet, "NodeMaintenance kernel evicts the pod in wave daemons, the last one.", "evicted: ", true},
		"and keeps those with data": {facts(ofDaemonSet().Change(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Keeps().AnyWave(daemons))), VerdictKept, "NodeMaintenance kernel keeps the pod, because it has emptyDir volumes", "evicted: ", true},
		"but not one that tolerates its taint":                {facts(ofDaemonSet().Change(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().AnyWave(daemons))), VerdictDaemonSet, "which would make another one on the same node", "evicted: ", true},
		"a maintenance keeps it":                              {facts(builder.Pod("shop", "db-0").Node("node-1").Ready(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Keeps())), VerdictKept, "NodeMaintenance kernel keeps the pod, because no controller would recreate it", "evicted: ", true},
		"one of two keeps it":                                 {facts(builder.Pod("shop", "db-0").Node("node-1").Ready(), underMaintenance(nil, builder.NodeMaintenance("kernel").Drain().Keeps(), builder.NodeMaintenance("disks").Drain())), VerdictNothingBlocks, "Nothing blocks", "evicted: ", true},
		"a native responder that nobody asked for by our API": {facts(pod().UID("uid"), answering(warned), natively(responding(nil))), VerdictNativeEviction, "Native responder a.example.com/a (1 of 3) has its turn and expects to be done in 2m: 42 %.", "429: ", false},
		"the same, after a request that was canceled":         {facts(pod().UID("uid"), with(planned().Canceled(v1alpha1.ReasonNoRequesters, ago(time.Minute))), answering(warned), natively(responding(nil))), VerdictNativeEviction, "Native responder a.example.com/a (1 of 3) has its turn", "429: ", false},
		"a native Eviction that nobody begins":                {facts(pod().UID("uid"), answering(warned), natively(builder.NativeEviction("shop", "db-0", "uid"))), VerdictNativeEviction, "(Eviction pod-1-db-0), and nobody has its turn", "429: ", false},
		"the end of a native Eviction":                        {facts(pod().UID("uid"), natively(builder.NativeEviction("shop", "db-0", "uid").Responders().State(lifecyclev1alpha1.EvictionResponderImperativeEviction, lifecyclev1alpha1.ResponderStateActive, now))), VerdictNativeEviction, "All native responders had their turn, and the pod is evicted as soon as its budgets allow that.", "evicted", true},
		"a native responder of a pod that ours is asked for":  {facts(pod().UID("uid"), with(nativeTurn()), answering(warned), natively(responding(nil))), VerdictInterceptorWorks, "Interceptor native.drawbridge.dev (1 of 2) has its turn", "429: ", false},
		"a request that was refused":                          {facts(pod(), with(evictionRequest().Canceled(v1alpha1.ReasonValidationFailed, ago(time.Minute)))), VerdictRefused, "The request was refused", "evicted", true},
		"a pod that is gone":                                  {facts(nil, with(planned().Evicted(v1alpha1.ReasonPodDeleted, ago(time.Minute)))), VerdictGone, "finished 60s ago", "404", false},
		"a pod that is gone, and nobody noticed":              {facts(nil, with(planned())), VerdictGone, "will notice", "404", false},
	}
	seen := map[Verdict]bool{}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Tell(tc.facts)
			seen[tc.want] = true
			if s.Verdict != tc.want || !strings.Contains(s.Headline, tc.headline) {
				t.Errorf("want %s with %q, have %s: %s", tc.want, tc.headline, s.Verdict, s.Headline)
			}
			if s.Answer.Evicts != tc.evicts || !strings.Contains(s.Answer.Text, tc.answer) {
				t.Errorf("answer: want %q (evicts: %t), have %+v", tc.answer, tc.evicts, s.Answer)
			}
		})
	}
	for _, v := range verdicts {
		if !seen[v.name] {
			t.Errorf("no case has the verdict %s", v.name)
		}
	}
}

func TestHowLongAnInterceptorMayBeSilentIsTold(t *testing.T) {
	cases := map[string]struct {
		deadline time.Duration
		want     string
	}{
		"by the installation": {0, "Or wait: after 20 minutes of silence (--heartbeat-deadline) Drawbridge passes it over."},
		"by its registration": {time.Hour, "Or wait: after 60m of silence (its heartbeatDeadline) Drawbridge passes it over."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := planned().Active(interA, ago(50*time.Minute))
			if tc.deadline > 0 {
				er.HeartbeatDeadline(interA, tc.deadline)
			}
			s := Tell(facts(pod(), with(er), answering(warned)))
			if s.Verdict != VerdictInterceptorSilent || !slices.Contains(s.Advice, tc.want) {
				t.Errorf("want the advice %q, have %s: %q", tc.want, s.Verdict, s.Advice)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	refused := builder.EvictionInterceptor(interB).When("nonsense(").Obj()
	refused.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidExpression, Message: "it does not compile"}}
	intercepted := func() *builder.PodWrapper { return pod().Interceptors(interA) }
	cases := map[string]struct {
		facts Facts
		want  []string
	}{
		"nothing to note":                                     {facts: facts(pod())},
		"something was not read":                              {facts(pod(), func(f *Facts) { f.Unread = []string{"events (no)"} }), []string{"Not read, so this may be incomplete: events (no)"}},
		"registrations were not read":                         {facts(pod(), func(f *Facts) { f.Unread = []string{"evictioninterceptors (no)"} }), []string{"Not read", "There may be more interceptors"}},
		"the annotation has a typo":                           {facts(pod().Interceptors("A!"), answering(warned)), []string{`cannot be read in full: "A!" is not a fully qualified domain name.`}},
		"a registration is not in force":                      {facts(pod(), func(f *Facts) { f.Registrations = []v1alpha1.EvictionInterceptor{*refused} }), []string{"EvictionInterceptor b.example.com is not in force (InvalidExpression): it does not compile."}},
		"the webhook is not asked":                            {facts(intercepted(), with(planned().Active(interA, ago(time.Minute))), asked("it is gone", "")), []string{"An eviction call would bypass the interceptors: it is gone."}},
		"the interceptors have nothing to do":                 {facts(intercepted(), asked("", "")), []string{"Its interceptors would not hold an eviction call up: asked by"}},
		"the webhook is asked":                                {facts: facts(intercepted(), answering(warned))},
		"the guard is closed":                                 {facts(intercepted(), with(planned().Active(interA, ago(time.Minute))), withBudgets(guard()), answering(warned)), []string{"The guard is closed: budget drawbridge-guard"}},
		"a requester does not wait for ever":                  {facts(intercepted(), with(planned().Active(interA, ago(time.Minute)).Deadline("spot.example.com", now.Add(30*time.Second))), answering(warned)), []string{"The interceptors have until 2026-11-22T12:00:30Z (30s from now), because of requester spot.example.com."}},
		"a taint deletes it":                                  {facts(intercepted(), with(planned().Requesters().Requester(v1alpha1.Requester{Name: v1alpha1.TaintEvictionRequester, Deadline: &metav1.Time{Time: now.Add(time.Minute)}}).Active(interA, ago(time.Minute))), answering(warned)), []string{"Kubernetes deletes the pod at 2026-11-22T12:01:00Z because of a taint of its node. Drawbridge cannot hold that."}},
		"it does not break an EvictionBudget":                 {facts(intercepted(), with(planned().Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, ago(time.Minute)).Deadline("spot.example.com", ago(time.Second))), answering(warned)), []string{"The time of the interceptors is over, because of requester spot.example.com. EvictionBudgets still count."}},
		"nor does it take their turns from native responders": {facts(intercepted(), with(planned().Interceptors(v1alpha1.NativeInterceptor).Active(v1alpha1.NativeInterceptor, ago(time.Minute)).Deadline("spot.example.com", ago(time.Second))), answering(warned)), []string{"The time of the interceptors is over, because of requester spot.example.com. Native responders know no deadlines, and still have their turns."}},
		"it has waited long enough":                           {facts(intercepted(), with(planned().Processed(interA, interB).Active(last, ago(time.Minute)).Condition(v1alpha1.ConditionCutOff, v1alpha1.ReasonDeadlineReached, ago(time.Minute))), func(f *Facts) { f.Request.Status.Conditions[0].Message = "The deadline of spot.example.com has come" }, answering(warned)), []string{"The deadline of spot.example.com has come."}},
		"it waits for less than is needed":                    {facts(intercepted(), with(planned().Active(interA, ago(time.Minute)).Deadline("spot.example.com", now.Add(30*time.Second)).Condition(v1alpha1.ConditionShortNotice, v1alpha1.ReasonTooShort, ago(time.Minute))), func(f *Facts) { f.Request.Status.Conditions[0].Message = "a.example.com needs 10m0s and has 90s" }, answering(warned)), []string{"a.example.com needs 10m0s and has 90s.", "The interceptors have until"}},
		"a maintenance wants it":                              {facts(intercepted(), with(planned().Requesters("kernel.node-maintenance.drawbridge.dev").Active(interA, ago(time.Minute))), answering(warned)), []string{"Requested by NodeMaintenance kernel"}},
		"a maintenance has got it out":                        {facts: facts(nil, with(planned().Requesters("kernel.node-maintenance.drawbridge.dev").Evicted(v1alpha1.ReasonPodDeleted, ago(time.Minute))))},
		"the node is lost":                                    {facts(intercepted(), with(planned().Processed(interA).Active(interB, ago(time.Minute)).Condition(v1alpha1.ConditionNodeLost, v1alpha1.ReasonNodeUnreachable, ago(time.Minute))), func(f *Facts) { f.Request.Status.Conditions[0].Message = "Node node-1 is lost: it is so" }, answering(warned)), []string{"Node node-1 is lost: it is so. The pod's end is not confirmed until the node is back"}},
		"the node is away":                                    {facts(pod(), func(f *Facts) { f.Node = builder.Node("node-1").Ready(corev1.ConditionUnknown).Obj() }), []string{"Node node-1 is not ready."}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Tell(tc.facts).Notes
			if len(got) != len(tc.want) || !slices.EqualFunc(got, tc.want, strings.Contains) {
				t.Errorf("notes: want %q, have %q", tc.want, got)
			}
		})
	}
}

func TestWhereInterceptorsComeFrom(t *testing.T) {
	registrations := []v1alpha1.EvictionInterceptor{*builder.EvictionInterceptor(interB).Pods("app", "db").Priority(20000).ActedBy("ops", "b").Obj()}
	f := facts(pod().Interceptors(interA), func(f *Facts) { f.Registrations = registrations }, answering(warned))
	want := []Interceptor{
		{Name: interB, Source: "registration, priority 20000", State: stateWould, ServiceAccounts: []string{"ops/b"}},
		{Name: interA, Source: "annotation of the pod", State: stateWould},
		{Name: last, Source: "always the last", State: stateWould},
	}
	if diff := cmp.Diff(want, Tell(f).Interceptors); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
}

// What is known by arithmetic is said in each place, and never as something that may pass.
func TestABudgetThatCanNeverAllowIsNotToldAsOneThatMight(t *testing.T) {
	const says = "can never allow a disruption (minAvailable is 2 of 2 pods)"
	cases := map[string]struct {
		facts Facts
		want  []string
	}{
		"nobody intercepts it": {facts(pod(), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)),
			[]string{"Waiting does not help. Relax the budget, or run more replicas than it needs: kubectl -n shop edit poddisruptionbudget db. Then the drain's next try goes through."}},
		"a Deployment's pod": {facts(pod().Change(func(p *corev1.Pod) { p.OwnerReferences = nil }).OwnedBy("ReplicaSet", "db"), withBudgets(*budget(0).Obj()), withPeers(1), answering(refusal)),
			[]string{"Waiting does not help", "For a Deployment, opt in to replacements first"}},
		"interceptors come first": {facts(pod().Interceptors(interA), withBudgets(*budget(0).Obj()), withPeers(1), answering(warned)),
			[]string{"Nothing: drain the node.", "Then budget db " + says + ", unless an interceptor makes room for it."}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			story := Tell(tc.facts)
			if got := story.Advice; len(got) != len(tc.want) || !slices.EqualFunc(got, tc.want, strings.Contains) {
				t.Errorf("advice: want %q, have %q", tc.want, got)
			}
			if diff := cmp.Diff([]Budget{{Name: "db", Never: says, Why: says + "; 2 of 2 pods healthy, 2 needed"}}, story.Budgets); diff != "" {
				t.Errorf("budgets (-want +got):\n%s", diff)
			}
		})
	}
}

// A status may be older than the labels of the pods.
func TestBudgetsCountThePodsThemselves(t *testing.T) {
	stale := budget(0)
	stale.Status.ExpectedPods, stale.Status.CurrentHealthy, stale.Status.DesiredHealthy = 4, 4, 2
	lost := pod().UID("lost").Label("app", "former").Obj()
	f := facts(pod(), withBudgets(*stale.Obj()), withPeers(1), func(f *Facts) { f.Peers = append(f.Peers, lost) })
	got := BudgetsOf(f.Pod, f.Budgets, f.Peers)[0].Why
	if want := "can never allow a disruption (minAvailable is 2 of 2 pods); 2 of 2 pods healthy, 2 needed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := BudgetsOf(f.Pod, f.Budgets, nil)[0].Why, "allows none now; 4 of 4 pods healthy, 2 needed"; got != want {
		t.Errorf("without the pods: %q, want %q", got, want)
	}
}

// The whole of it, as a person reads it.
func TestAStoryInFull(t *testing.T) {
	er := planned().Leased("carol.users.drawbridge.dev", "carol-node-1").
		Active(interA, ago(9*time.Minute)).Started(interA, ago(9*time.Minute)).
		Report(interA, func(s *v1alpha1.InterceptorStatus) {
			s.CompletionTime, s.SkippedBy, s.Message = &metav1.Time{Time: ago(8 * time.Minute)}, "olga", "Skipped by olga: the bucket is gone"
		}).
		Processed(interA).Active(interB, ago(8*time.Minute)).Started(interB, ago(7*time.Minute)).Heartbeat(interB, ago(30*time.Second)).
		Report(interB, func(s *v1alpha1.InterceptorStatus) {
			s.ExpectedFinishTime, s.Message = &metav1.Time{Time: now.Add(90 * time.Second)}, "42 % of 8 GiB"
		})
	f := facts(pod().Interceptors(interA), with(er), withBudgets(*budget(0).Obj()), answering(&DryRun{Result: translate.ResultBudget, Detail: "no", Warnings: foretold(`429: Eviction triggered evacuation: waiting for interceptor "b.example.com" (2 of 3)`).Warnings}), func(f *Facts) {
		f.Registrations = []v1alpha1.EvictionInterceptor{*builder.EvictionInterceptor(interB).Pods("app", "db").ActedBy("ops", "b").Obj()}
		f.Leases = map[string]translate.LeaseRecord{"carol-node-1": {Display: "kubectl (carol)", RenewedAt: ago(5 * time.Second), TTL: 2 * time.Minute}}
		f.Events = []eventsv1.Event{
			{Reason: "EvictionRequested", Note: "carol.users.drawbridge.dev requests the eviction.", EventTime: metav1.NewMicroTime(ago(10 * time.Minute))},
			{Reason: "InterceptorActivated", Note: "told by the request", EventTime: metav1.NewMicroTime(ago(9 * time.Minute))},
		}
	})
	var text strings.Builder
	if err := Print(&text, Tell(f), now, true); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "why.golden.txt", text.String())
}
