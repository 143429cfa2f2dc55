//go:build unix

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A person ends the turn of an interceptor that belongs to somebody else, and that is
// on record.
func TestSkip(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	stuck := nameIn(namespace, "stuck")
	register(t, builder.EvictionInterceptor(stuck).InNamespace(namespace).ActedBy(namespace, "nobody"))
	pod := createPod(t, builder.Pod(namespace, "db-0").NodeSelector(testLabel, namespace).Obj())
	drain := startDrain(t, "dora", node)
	waitRequest(t, pod, "intercepted", activeIs(stuck))

	// Whoever may only drain has no permission, and hears which one is missing.
	p := &pluginCall{user: "dora", group: drainers}
	code, said := p.run(t.Context(), t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
	if code != 1 || !strings.Contains(said, `no permission: `) || !strings.Contains(said, `cannot get resource "evictionrequests"`) {
		t.Errorf("exit code %d, %q", code, said)
	}
	// The permission to write the status is not enough.
	create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reporters"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"get", "patch"}},
	}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reporters"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reporters"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "dora"}},
	})
	eventually(t, "dora's skip to be refused for want of the verb", func(ctx context.Context) error {
		p := &pluginCall{user: "dora", group: drainers}
		_, said := p.run(ctx, t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
		if !strings.Contains(said, `user "dora" cannot skip an interceptor: the verb "skip" on resource "evictionrequests"`) {
			return textError(said)
		}
		return nil
	})
	lives(t, pod)

	plugin(t, "skip", pod.Name, stuck, "-n", namespace, "--reason=it hangs")
	er := waitRequest(t, pod, "evicted", isTrue(v1alpha1.ConditionEvicted))
	report := er.Status.Interceptors[0]
	if diff := cmp.Diff([]string{stuck, "olga", "Skipped by olga: it hangs"}, []string{report.Name, report.SkippedBy, report.Message}); diff != "" {
		t.Errorf("name, skippedBy and message of the report (-want +got):\n%s", diff)
	}
	event := waitEvent(t, er, events.ReasonInterceptorSkipped)
	if want := "olga skipped interceptor " + stuck + ", which had not completed: Skipped by olga: it hangs"; event.Note != want {
		t.Errorf("event %q, want %q", event.Note, want)
	}
	finishWell(t, drain)
	told := storyOf(t, pod, 0)
	if err := wantVerdict(told, why.VerdictGone); err != nil {
		t.Error(err)
	}
}
