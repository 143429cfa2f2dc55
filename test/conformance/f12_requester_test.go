package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// nativeRequester is who asks in these tests; otherRequester is there before it.
const (
	nativeRequester = "maintenance.example.com"
	otherRequester  = "drain.example.com"
)

// requesterRules is what interceptor.Requester says it needs, and nothing else.
var requesterRules = []rbacv1.PolicyRule{
	{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "delete"}},
}

// asRequester makes a requester that acts as a user with these rules.
func (w *world) asRequester(t *testing.T, user, name string, rules ...rbacv1.PolicyRule) *requester.Requester {
	t.Helper()
	if err := grant(t.Context(), w.admin, w.ns, user, rules...); err != nil {
		t.Fatal(err)
	}
	config, err := kube.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	// A user's permissions take a moment until they are known everywhere.
	probe := builder.EvictionRequest(w.ns, "nobody", "0").Requesters(name).Obj()
	await(t, "the requester's permissions", func(ctx context.Context) error {
		if err := c.List(ctx, &v1alpha1.EvictionRequestList{}, client.InNamespace(w.ns)); err != nil {
			return err
		}
		if err := c.Create(ctx, probe.DeepCopy(), client.DryRunAll); apierrors.IsForbidden(err) && slices.ContainsFunc(rules, deletes) {
			return err
		}
		return nil
	})
	return &requester.Requester{Name: name, Client: c}
}

// deletes reports whether a rule allows to delete pods.
func deletes(rule rbacv1.PolicyRule) bool {
	return slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "delete")
}

// following is a Follow beside the test.
type following struct {
	mu      sync.Mutex
	updates []requester.Update
	outcome requester.Outcome
	err     error
	done    chan struct{}
}

// startFollow follows until the end of the test at the latest.
func startFollow(t *testing.T, r *requester.Requester, pod *corev1.Pod) (*following, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.outcome, f.err = r.Follow(ctx, pod.DeepCopy(), func(u requester.Update) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.updates = append(f.updates, u)
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f, cancel
}

// wait waits for the end and returns the outcome.
func (f *following) wait(t *testing.T) requester.Outcome {
	t.Helper()
	await(t, "the follower to end", func(context.Context) error {
		select {
		case <-f.done:
			return nil
		default:
			return fmt.Errorf("it follows, and has told %v", f.told())
		}
	})
	if f.err != nil {
		t.Fatal(f.err)
	}
	return f.outcome
}

// told are the states and turns that were told, each once in a row.
func (f *following) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var told []string
	for _, u := range f.updates {
		line := string(u.State)
		if u.Position > 0 {
			line += fmt.Sprintf(" %s %d/%d", u.Interceptor, u.Position, u.Total)
		}
		if len(told) == 0 || told[len(told)-1] != line {
			told = append(told, line)
		}
	}
	return told
}

// wants reports whether these are the requesters of a request.
func wants(names ...string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool { return cmp.Equal(names, requestersOf(er)) }
}

// untilWanted waits until the pod has a request with these requesters, other than
// the one of that UID.
func (w *world) untilWanted(t *testing.T, pod *corev1.Pod, not *v1alpha1.EvictionRequest, names ...string) *v1alpha1.EvictionRequest {
	t.Helper()
	var er *v1alpha1.EvictionRequest
	await(t, "a request with the requesters", func(ctx context.Context) error {
		er = &v1alpha1.EvictionRequest{}
		if err := w.admin.Get(ctx, keyOf(pod), er); err != nil {
			return err
		}
		if (not != nil && er.UID == not.UID) || !wants(names...)(er) {
			return fmt.Errorf("request %s of %v", er.UID, requestersOf(er))
		}
		return nil
	})
	return er
}

// removeRequester takes an entry out as somebody else.
func (w *world) removeRequester(t *testing.T, pod *corev1.Pod, name string) {
	t.Helper()
	w.updateSpec(t, keyOf(pod), func(er *v1alpha1.EvictionRequest) {
		er.Spec.Requesters = slices.DeleteFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == name })
	})
}

func mustJoin(t *testing.T, r *requester.Requester, pod *corev1.Pod) *v1alpha1.EvictionRequest {
	t.Helper()
	er, err := r.Join(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return er
}

func mustWithdraw(t *testing.T, r *requester.Requester, pod *corev1.Pod) {
	t.Helper()
	if err := r.Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// F12: the contract of requesters, as interceptor.Requester keeps it for anybody.
func TestConformance_F12_NativeRequester(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	w := newWorld(t, mgr)
	r := w.asRequester(t, "maintenance", nativeRequester, requesterRules...)
	other := w.asRequester(t, "other", otherRequester, requesterRules...)

	t.Run("114 a native one names the request by the pod's UID and its target by name and UID", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		patient := &requester.Requester{Name: r.Name, Client: r.Client, GracePeriodSeconds: ptr.To[int64](5)}
		er := mustJoin(t, patient, pod)
		want := v1alpha1.EvictionRequestSpec{
			Target:     v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: pod.Name, UID: pod.UID}},
			Requesters: []v1alpha1.Requester{{Name: nativeRequester, GracePeriodSeconds: ptr.To[int64](5)}},
		}
		if diff := cmp.Diff(want, er.Spec); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if er.Name != string(pod.UID) {
			t.Errorf("name %s, want %s", er.Name, pod.UID)
		}
	})
	t.Run("100, 114 it adds itself by server-side apply, and again changes nothing", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		mustJoin(t, other, pod)
		er := mustJoin(t, r, pod)
		if diff := cmp.Diff([]string{otherRequester, nativeRequester}, requestersOf(er)); diff != "" {
			t.Errorf("requesters (-want +got):\n%s", diff)
		}
		owners := map[string]metav1.ManagedFieldsOperationType{}
		for _, fields := range w.get(t, keyOf(pod)).ManagedFields {
			if fields.FieldsV1 != nil && fields.Subresource == "" && strings.Contains(fields.FieldsV1.GetRawString(), nativeRequester) {
				owners[fields.Manager] = fields.Operation
			}
		}
		if diff := cmp.Diff(map[string]metav1.ManagedFieldsOperationType{nativeRequester: metav1.ManagedFieldsOperationApply}, owners); diff != "" {
			t.Errorf("who owns its entry (-want +got):\n%s", diff)
		}
		if again := mustJoin(t, r, pod); again.UID != er.UID || again.Generation != er.Generation {
			t.Errorf("it became %s, generation %d; was %s, generation %d", again.UID, again.Generation, er.UID, er.Generation)
		}
	})
	t.Run("114 it comes back when others remove it", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		mustJoin(t, other, pod)
		startFollow(t, r, pod)
		before := w.untilWanted(t, pod, nil, otherRequester, nativeRequester)
		for range 2 {
			w.removeRequester(t, pod, nativeRequester)
			if after := w.untilWanted(t, pod, nil, otherRequester, nativeRequester); after.UID != before.UID {
				t.Errorf("the request is %s, was %s", after.UID, before.UID)
			}
		}
	})
	for name, take := range map[string]func(*testing.T, *corev1.Pod){
		"97, 114 it begins anew when others cancel the request": func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			w.removeRequester(t, pod, nativeRequester)
		},
		"95, 114 it begins anew when others delete the request": func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			if err := w.admin.Delete(t.Context(), w.get(t, keyOf(pod))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := w.pod(t, podName(t), interceptorA)
			f, _ := startFollow(t, r, pod)
			before := w.untilWanted(t, pod, nil, nativeRequester)
			w.untilActive(t, keyOf(pod), interceptorA)
			take(t, pod)
			w.untilWanted(t, pod, before, nativeRequester)
			w.untilActive(t, keyOf(pod), interceptorA)
			w.lives(t, pod)
			w.report(t, keyOf(pod), completes(interceptorA, w.now()))
			if got := f.wait(t); got.State != v1alpha1.StateEvicted {
				t.Errorf("outcome %+v", got)
			}
		})
	}
	t.Run("97, 114 to join what was canceled begins anew", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		canceled := mustJoin(t, r, pod)
		mustWithdraw(t, r, pod)
		w.untilTrue(t, keyOf(pod), v1alpha1.ConditionCanceled)
		if er := mustJoin(t, r, pod); er.UID == canceled.UID || !wants(nativeRequester)(er) {
			t.Errorf("joined %s of %v, want another request than %s", er.UID, requestersOf(er), canceled.UID)
		}
		w.untilActive(t, keyOf(pod), interceptorA)
	})
	t.Run("114 it removes itself, and only itself, when it does not want the eviction any more", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		mustJoin(t, other, pod)
		f, cancel := startFollow(t, r, pod)
		w.untilWanted(t, pod, nil, otherRequester, nativeRequester)
		cancel()
		<-f.done
		if !errors.Is(f.err, context.Canceled) {
			t.Errorf("Follow ended with %v", f.err)
		}
		for range 2 { // The second time there is nothing to do.
			mustWithdraw(t, r, pod)
			if diff := cmp.Diff([]string{otherRequester}, requestersOf(w.get(t, keyOf(pod)))); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		}
		mustWithdraw(t, other, pod)
		w.untilTrue(t, keyOf(pod), v1alpha1.ConditionCanceled)
		w.lives(t, pod)
	})
	t.Run("114 it removes itself from what somebody else wrote, too", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters(nativeRequester, otherRequester).Obj()
		if err := w.admin.Create(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		mustWithdraw(t, r, pod)
		if diff := cmp.Diff([]string{otherRequester}, requestersOf(w.get(t, keyOf(pod)))); diff != "" {
			t.Errorf("requesters (-want +got):\n%s", diff)
		}
	})
	t.Run("114 to withdraw what does not exist is no error", func(t *testing.T) {
		mustWithdraw(t, r, w.pod(t, podName(t)))
	})
	t.Run("114 it follows to the end", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		f, _ := startFollow(t, r, pod)
		await(t, "the first turn to be told", func(context.Context) error {
			if told := f.told(); !slices.Contains(told, "Intercepting a.example.com 1/2") {
				return fmt.Errorf("told: %v", told)
			}
			return nil
		})
		w.report(t, keyOf(pod), completes(interceptorA, w.now()))
		if got := f.wait(t); got.State != v1alpha1.StateEvicted || got.Reason != v1alpha1.ReasonPodDeleted {
			t.Errorf("outcome %+v", got)
		}
		// A watch that begins late may leave out the beginning, never the rest.
		told := slices.DeleteFunc(f.told(), func(line string) bool { return line == string(v1alpha1.StatePending) })
		want := []string{"Intercepting a.example.com 1/2", "Evicting imperative-eviction.k8s.io 2/2", "Evicted"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		// Who asks once more hears that it is done.
		if er := mustJoin(t, r, pod); !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted) {
			t.Errorf("joined %+v", er.Status)
		}
	})
	t.Run("51, 114 it hears that its request was refused", func(t *testing.T) {
		gone := builder.Pod(w.ns, podName(t)).UID("0e8b7c52-0000-4000-8000-000000000000").Obj()
		mustJoin(t, r, gone)
		f, _ := startFollow(t, r, gone)
		if got := f.wait(t); got.State != v1alpha1.StateCanceled || got.Reason != v1alpha1.ReasonValidationFailed {
			t.Errorf("outcome %+v", got)
		}
	})
	t.Run("15, 114 who may not delete the pod is told what is missing", func(t *testing.T) {
		weak := w.asRequester(t, "weak", "weak.example.com", requesterRules[0])
		pod := w.pod(t, podName(t), interceptorA)
		_, joined := weak.Join(t.Context(), pod)
		_, followed := weak.Follow(t.Context(), pod, nil)
		for call, err := range map[string]error{"Join": joined, "Follow": followed} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "and delete on the pod") {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
	t.Run("9, 114 the hundred-and-first requester is told that there is no room", func(t *testing.T) {
		pod := w.pod(t, podName(t), interceptorA)
		full := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID)
		for i := range v1alpha1.MaxRequesters {
			full.Requester(v1alpha1.Requester{Name: fmt.Sprintf("r%d.example.com", i)})
		}
		if err := w.admin.Create(t.Context(), full.Obj()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Join(t.Context(), pod); !errors.Is(err, requester.ErrTooManyRequesters) {
			t.Errorf("Join: %v", err)
		}
	})
}
