package hookstest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// progress is what has been seen of one test.
type progress struct {
	hook    *v1alpha1.EvacuationHook
	pod     string
	request types.UID

	// message is the last one of the hook's report.
	message string
	// run is the newest record, and ended the one with which the hook had ended; both are
	// zero before.
	run, ended v1alpha1.HookRun
	// forgotten: the record has been removed, which is the last thing that happens.
	forgotten bool
	// planned: Drawbridge has seen the request.
	planned bool
	// wrongTurn is the interceptor that has the turn in place of the hook.
	wrongTurn string
	// others want the pod evicted.
	others []string
	// over is when the request was seen to have ended, or to go on for others only.
	over time.Time
	// refused is why Drawbridge does not take the request, and evicted why the pod went.
	refused, evicted string
	hookGone         bool
	// unknown: nobody has said whether the undo has succeeded.
	unknown bool
}

func (t *progress) interceptor() string {
	return v1alpha1.HookInterceptor(client.ObjectKeyFromObject(t.hook))
}

// undoes: an eviction that is canceled is followed by an undo.
func (t *progress) undoes() bool { return t.hook.Spec.Undo != nil && !t.hook.Spec.PointOfNoReturn }

// job is the name of the Job of the run's attempt, empty if the hook runs none.
func (t *progress) job() string {
	if t.hook.Spec.Job == nil {
		return ""
	}
	return v1alpha1.HookJobName(t.hook.Name, t.request, t.ended.Attempt)
}

// seesHook returns the news in a version of the hook; nil means that it is deleted.
func (t *progress) seesHook(hook *v1alpha1.EvacuationHook) []string {
	if hook == nil || hook.UID != t.hook.UID {
		t.hookGone = true
		return nil
	}
	i := slices.IndexFunc(hook.Status.Runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == string(t.request) })
	if i < 0 {
		t.forgotten = t.run.Phase != ""
		return nil
	}
	run := hook.Status.Runs[i]
	before := t.run
	t.run = run
	if before.Phase == run.Phase && before.Attempt == run.Attempt {
		return nil
	}
	because := text.Clean(run.Message)
	switch run.Phase {
	case v1alpha1.HookRunning:
		return []string{fmt.Sprintf("attempt %d begins", run.Attempt)}
	case v1alpha1.HookRefused:
		return []string{fmt.Sprintf("attempt %d cannot begin, and continues by itself: %s", run.Attempt, because)}
	case v1alpha1.HookRetrying:
		return []string{fmt.Sprintf("attempt %d has failed, another one follows: %s", run.Attempt, because)}
	case v1alpha1.HookSucceeded:
		t.ended = run
		return []string{"the hook is done: " + cmp.Or(because, "it has succeeded")}
	case v1alpha1.HookHeld, v1alpha1.HookContinued:
		t.ended = run
		return []string{"the hook has failed: " + because}
	case v1alpha1.HookUndoing:
		return []string{"the undo begins"}
	case v1alpha1.HookUndone:
		return []string{"the undo has ended: " + because}
	}
	return nil
}

// seesRequest returns the news in a version of the request; nil means that it is deleted.
func (t *progress) seesRequest(er *v1alpha1.EvictionRequest, now time.Time) []string {
	if er == nil {
		t.ends(now)
		return nil
	}
	if er.UID != t.request {
		return nil
	}
	t.planned = t.planned || len(er.Status.TargetInterceptors) > 0
	var lines []string
	if message := text.Clean(v1alpha1.ReportOf(er, t.interceptor()).Message); message != "" && message != t.message {
		t.message = message
		lines = append(lines, message)
	}
	t.others = nil
	for _, r := range er.Spec.Requesters {
		if r.Name != v1alpha1.HookTestRequester {
			t.others = append(t.others, r.Name)
		}
	}
	canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	evicted := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionEvicted)
	switch {
	case evicted != nil && evicted.Status == "True":
		t.evicted = cmp.Or(text.Clean(evicted.Message), evicted.Reason)
	case canceled != nil && canceled.Status == "True":
		if canceled.Reason != v1alpha1.ReasonNoRequesters {
			t.refused = cmp.Or(text.Clean(canceled.Message), canceled.Reason)
		}
		t.ends(now)
	case len(t.others) > 0 && len(t.others) == len(er.Spec.Requesters):
		t.ends(now)
	case len(er.Status.ActiveInterceptors) > 0 && er.Status.ActiveInterceptors[0] != t.interceptor():
		t.wrongTurn = er.Status.ActiveInterceptors[0]
	}
	return lines
}

func (t *progress) ends(now time.Time) {
	if t.over.IsZero() {
		t.over = now
	}
}

// errWrongTurn says that the test must be withdrawn.
var errWrongTurn = errors.New("the test is canceled")

// result is how the test ended, if it has: an error if the hook failed or did not run to
// its end.
func (t *progress) result(now time.Time) (over bool, err error) {
	switch {
	case t.evicted != "":
		return true, fmt.Errorf("pod %s is evicted, and not by this test: %s", t.pod, t.evicted)
	case t.refused != "":
		return true, fmt.Errorf("the request for pod %s is refused: %s", t.pod, t.refused)
	case t.wrongTurn != "" && t.ended.Phase == "":
		return true, fmt.Errorf("%w: it is the turn of %s, not of hook %s", errWrongTurn, t.wrongTurn, t.hook.Name)
	case t.over.IsZero():
		return false, nil
	case t.hookGone && t.ended.Phase == "":
		return true, fmt.Errorf("hook %s was deleted during the test", t.hook.Name)
	}
	// The hook and the request are watched separately, so the end may not have been seen.
	late := now.Sub(t.over) >= cli.ConfirmPatience
	undo := t.undoes() && t.run.Phase != "" && len(t.others) == 0 && !t.hookGone
	switch {
	case undo && t.run.Phase != v1alpha1.HookUndone && !t.forgotten:
		return false, nil
	case t.ended.Phase == "" && !late:
		return false, nil
	case t.ended.Phase == "":
		return true, fmt.Errorf("the test of hook %s was canceled before the hook had ended", t.hook.Name)
	case t.ended.Phase == v1alpha1.HookSucceeded:
		return true, nil
	}
	text := fmt.Sprintf("hook %s has failed for pod %s: %s", t.hook.Name, t.pod, text.Clean(t.ended.Message))
	if job := t.job(); job != "" {
		text += fmt.Sprintf("\nTo see what the Job says: kubectl logs -n %s job/%s", t.hook.Namespace, job)
	}
	return true, errors.New(text)
}

// summary is what remains of a test that has succeeded.
func (t *progress) summary() string {
	fate := "What it did stays: it has no undo."
	switch {
	case len(t.others) > 0:
		return fmt.Sprintf("Hook %s has succeeded for pod %s. Others have requested the eviction in the meantime, and it continues.", t.hook.Name, t.pod)
	case t.hookGone:
		fate = "What it did stays: the hook was deleted."
	case t.unknown:
		fate = "Whether what it did is undone is not known."
	case t.undoes():
		fate = "What it did is undone."
	case t.hook.Spec.Undo != nil:
		fate = "What it did stays: it has a point of no return."
	}
	return fmt.Sprintf("Hook %s has succeeded for pod %s, which was not evicted. %s", t.hook.Name, t.pod, fate)
}
