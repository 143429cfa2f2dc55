//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	name = "acme.example.com/migrate"
	// user of the responder: what it writes must be all that it needs.
	user    = "native-responder"
	evictor = lifecyclev1alpha1.EvictionResponderImperativeEviction
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{RequestLog: true}.WithNative(), func(c *cluster.Cluster) error {
		shared = c
		return letRespond(context.Background())
	}))
}

func letRespond(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: user}
	roles := shared.Client().RbacV1()
	_, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions/status"}, Verbs: []string{"patch"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role of the responder: %w", err)
	}
	_, err = roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role of the responder: %w", err)
	}
	return nil
}

func start(t *testing.T, work time.Duration) *cluster.Program {
	t.Helper()
	binary := cluster.Must(manager.BuildNativeResponder(t.Context()))(t)
	kubeconfig := cluster.Must(shared.KubeconfigFile(user))(t)
	program := cluster.Must(shared.StartProgram(context.WithoutCancel(t.Context()), cluster.ProgramOptions{}, binary,
		"--kubeconfig="+kubeconfig, "--name="+name, "--work="+work.String()))(t)
	t.Cleanup(func() {
		if err := program.Kill(); err != nil {
			t.Errorf("kill the responder: %v", err)
		}
		<-program.Done()
	})
	return program
}

// create makes an Eviction with a label for the responder, in which it has its turn.
func create(t *testing.T, label lifecyclev1alpha1.EvictionParticipantRole) *lifecyclev1alpha1.Eviction {
	t.Helper()
	client := shared.Client().LifecycleV1alpha1().Evictions(shared.Namespace(t))
	eviction := cluster.Must(client.Create(t.Context(), &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-1-web", Labels: map[string]string{name: string(label)}},
		Spec: lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{
			Pod: &lifecyclev1alpha1.EvictionPodReference{Name: "web", UID: uuid.NewUUID()},
		}},
	}, metav1.CreateOptions{}))(t)
	eviction.Status = lifecyclev1alpha1.EvictionStatus{
		TargetResponders: []lifecyclev1alpha1.TargetResponder{
			{Name: evictor, Priority: ptr.To[int32](100), State: lifecyclev1alpha1.ResponderStateInactive},
			{Name: name, Priority: ptr.To[int32](2000), State: lifecyclev1alpha1.ResponderStateActive},
		},
		Responders: []lifecyclev1alpha1.ResponderStatus{{Name: evictor}, {Name: name, StartTime: ptr.To(metav1.Now())}},
	}
	return cluster.Must(client.UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
}

// report waits for what it has said to be as wanted.
func report(t *testing.T, of *lifecyclev1alpha1.Eviction, what string, wanted func(lifecyclev1alpha1.ResponderStatus) bool) *lifecyclev1alpha1.Eviction {
	t.Helper()
	var got *lifecyclev1alpha1.Eviction
	cluster.Eventually(t, what, func(ctx context.Context) (err error) {
		got, err = shared.Client().LifecycleV1alpha1().Evictions(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if err == nil && !wanted(got.Status.Responders[1]) {
			err = fmt.Errorf("it says %+v", got.Status.Responders[1])
		}
		return err
	})
	return got
}

func begun(r lifecyclev1alpha1.ResponderStatus) bool { return r.HeartbeatTime != nil }

func done(r lifecyclev1alpha1.ResponderStatus) bool { return r.CompletionTime != nil }

// move plays the controller: it writes states of the responder and of the evictor.
func move(t *testing.T, eviction *lifecyclev1alpha1.Eviction, mine, next lifecyclev1alpha1.ResponderStateType, conditions ...metav1.Condition) {
	t.Helper()
	eviction.Status.TargetResponders[1].State, eviction.Status.TargetResponders[0].State = mine, next
	if next == lifecyclev1alpha1.ResponderStateActive {
		eviction.Status.Responders[0].StartTime = ptr.To(metav1.Now())
	}
	eviction.Status.Conditions = conditions
	cluster.Must(shared.Client().LifecycleV1alpha1().Evictions(eviction.Namespace).UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
}

func TestItReportsWorksAndCompletes(t *testing.T) {
	mark := shared.RequestLog().Mark()
	start(t, 2*time.Second)
	for _, label := range []lifecyclev1alpha1.EvictionParticipantRole{
		lifecyclev1alpha1.EvictionParticipantRoleResponder, lifecyclev1alpha1.EvictionParticipantRoleRequesterResponder,
	} {
		t.Run(string(label), func(t *testing.T) {
			eviction := report(t, create(t, label), "it begins", begun)
			first := eviction.Status.Responders[1]
			if first.CompletionTime != nil || first.Message == nil || *first.Message != "at work" ||
				first.ExpectedCompletionTime == nil || first.ExpectedCompletionTime.Sub(first.HeartbeatTime.Time) != 2*time.Second {
				t.Errorf("its first report: %+v, want a heartbeat, an estimate 2 s after it and a message", first)
			}
			eviction = report(t, eviction, "it completes", done)
			last := eviction.Status.Responders[1]
			if last.CompletionTime.Before(first.ExpectedCompletionTime) || !last.HeartbeatTime.Equal(first.HeartbeatTime) {
				t.Errorf("it has completed early, or has changed what it said: %+v after %+v", last, first)
			}
			move(t, eviction, lifecyclev1alpha1.ResponderStateCompleted, lifecyclev1alpha1.ResponderStateActive)
		})
	}
	var writes []string
	for _, r := range cluster.Must(shared.RequestLog().Since(t.Context(), mark))(t).By(user) {
		if r.Resource == "evictions" && r.Subresource == "status" {
			writes = append(writes, fmt.Sprintf("%s %d", r.Verb, r.Code))
		}
	}
	if diff := cmp.Diff([]string{"patch 200", "patch 200", "patch 200", "patch 200"}, writes); diff != "" {
		t.Errorf("its writes for two Evictions (-want +got):\n%s", diff)
	}
}

func TestItSaysThatItWasCanceled(t *testing.T) {
	program := start(t, time.Hour)
	eviction := report(t, create(t, lifecyclev1alpha1.EvictionParticipantRoleResponder), "it begins", begun)
	move(t, eviction, lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateInactive, metav1.Condition{
		Type: string(lifecyclev1alpha1.EvictionConditionFailed), Status: metav1.ConditionTrue, Reason: "CanceledDueToNoRequesters", LastTransitionTime: metav1.Now(),
	})
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	if _, err := program.WaitLine(ctx, eviction.Namespace+"/pod-1-web: canceled"); err != nil {
		t.Error(err)
	}
}

func TestItHasNoPartInOthers(t *testing.T) {
	start(t, 0)
	theirs := create(t, lifecyclev1alpha1.EvictionParticipantRoleRequester)
	mine := create(t, lifecyclev1alpha1.EvictionParticipantRoleResponder)
	report(t, mine, "it completes its own", done)
	if got := report(t, theirs, "it is there", func(lifecyclev1alpha1.ResponderStatus) bool { return true }); begun(got.Status.Responders[1]) {
		t.Errorf("it has no label of a responder, yet it says %+v", got.Status.Responders[1])
	}
}

func TestItIsShortAndKnowsNothingOfUs(t *testing.T) {
	source := string(cluster.Must(os.ReadFile("main.go"))(t))
	if lines := strings.Count(source, "\n"); lines > 60 {
		t.Errorf("%d lines, the documentation promises 60", lines)
	}
	for _, module := range []string{"drawbridge-dev", "controller-runtime"} {
		if strings.Contains(source, module) {
			t.Errorf("it imports %s", module)
		}
	}
}
