package native

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// bind gives a user a role in a namespace.
func bind(t *testing.T, namespace, user, kind, role string) kubernetes.Interface {
	t.Helper()
	must(kube.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}))(t)
	return must(kubernetes.NewForConfig(must(kube.ConfigFor(user))(t)))(t)
}

// grant gives a user what is allowed by rules in a namespace.
func grant(t *testing.T, namespace, user string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	t.Helper()
	must(kube.Client().RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules,
	}, metav1.CreateOptions{}))(t)
	return bind(t, namespace, user, "Role", user)
}

// C.4 Who may: the roles that every cluster has.
func TestNative_C4_Roles(t *testing.T) {
	namespace := kube.Namespace(t)
	const (
		wishes = "evictionrequests"
		theirs = "evictions"
		status = "evictions/status"
	)
	for name, tc := range map[string]struct {
		role string
		may  []string // What of the questions below.
	}{
		"N44 view reads both kinds":                 {role: "view", may: []string{"list " + wishes, "list " + theirs}},
		"N44 edit writes wishes, but no Evictions":  {role: "edit", may: []string{"list " + wishes, "list " + theirs, "create " + wishes, "patch " + wishes}},
		"N44 admin writes wishes, but no Evictions": {role: "admin", may: []string{"list " + wishes, "list " + theirs, "create " + wishes, "patch " + wishes}},
	} {
		t.Run(name, func(t *testing.T) {
			client := bind(t, namespace, "user-of-"+tc.role, "ClusterRole", tc.role)
			cluster.Eventually(t, "the answers", func(ctx context.Context) error { // Roles are put together by a controller.
				var may []string
				for _, question := range [][3]string{
					{"list", "evictionrequests", ""}, {"list", "evictions", ""},
					{"create", "evictionrequests", ""}, {"patch", "evictionrequests", ""},
					{"create", "evictions", ""}, {"patch", "evictions", ""}, {"patch", "evictions", "status"},
					{"patch", "evictionrequests", "status"},
				} {
					review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
						Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: namespace, Group: lifecyclev1alpha1.GroupName, Verb: question[0], Resource: question[1], Subresource: question[2],
						}},
					}, metav1.CreateOptions{})
					if err != nil {
						return err
					}
					if text := question[0] + " " + question[1]; review.Status.Allowed {
						if question[2] != "" {
							text += "/" + question[2]
						}
						may = append(may, text)
					}
				}
				if diff := cmp.Diff(tc.may, may); diff != "" {
					return fmt.Errorf("what %s may (-want +got), %s among it: %s", tc.role, status, diff)
				}
				return nil
			})
		})
	}

	t.Run("N45 a responder may patch evictions/status and nothing else", func(t *testing.T) {
		eviction := must(evictions(namespace).Create(t.Context(), newEviction(), metav1.CreateOptions{}))(t)
		begun(&eviction.Status)
		must(evictions(namespace).UpdateStatus(t.Context(), eviction, metav1.UpdateOptions{}))(t)
		report := apply.Eviction(eviction.Name, namespace).WithStatus(apply.EvictionStatus().WithResponders(
			apply.ResponderStatus().WithName(first).WithHeartbeatTime(metav1.Now())))
		options := metav1.ApplyOptions{FieldManager: first, Force: true}

		nobody := must(kubernetes.NewForConfig(must(kube.ConfigFor("nobody-responds"))(t)))(t)
		if _, err := nobody.LifecycleV1alpha1().Evictions(namespace).ApplyStatus(t.Context(), report, options); !apierrors.IsForbidden(err) {
			t.Errorf("without a grant: got %v, want Forbidden", err)
		}
		mine := grant(t, namespace, "responds", rbacv1.PolicyRule{
			APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{status}, Verbs: []string{"patch"},
		}).LifecycleV1alpha1().Evictions(namespace)
		cluster.Eventually(t, "the grant lets it report", func(ctx context.Context) error {
			_, err := mine.ApplyStatus(ctx, report, options)
			return err
		})
		label := apply.Eviction(eviction.Name, namespace).WithLabels(map[string]string{first: "responder"})
		if _, err := mine.Apply(t.Context(), label, options); !apierrors.IsForbidden(err) {
			t.Errorf("a write of the object: got %v, want Forbidden", err)
		}
	})
	t.Run("N46 who wishes needs no permission to delete pods", func(t *testing.T) {
		client := grant(t, namespace, "wishes", rbacv1.PolicyRule{
			APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{wishes}, Verbs: []string{"create"},
		})
		cluster.Eventually(t, "the wish is accepted", func(ctx context.Context) error {
			_, err := client.LifecycleV1alpha1().EvictionRequests(namespace).Create(ctx, newRequest(), metav1.CreateOptions{})
			return err
		})
		if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("deletes a pod: got %v, want Forbidden", err)
		}
	})
}

func responders(priority *int32, names ...string) []corev1.EvictionResponder {
	var all []corev1.EvictionResponder
	for _, name := range names {
		all = append(all, corev1.EvictionResponder{Name: name, Priority: priority})
	}
	return all
}

// C.4 What pods say.
func TestNative_C4_Pods(t *testing.T) {
	namespace := kube.Namespace(t)
	pods := kube.Client().CoreV1().Pods(namespace)
	usual := ptr.To[int32](2000)
	grouped := func(p *corev1.Pod) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("training")}
	}
	for name, tc := range map[string]struct {
		responders []corev1.EvictionResponder
		with       func(*corev1.Pod)
		want       string
	}{
		"N49 ten responders are accepted":               {responders: responders(usual, names(10)...)},
		"N49 eleven responders are refused":             {responders: responders(usual, names(11)...), want: "spec.evictionResponders: Too many"},
		"N49 the same twice is refused":                 {responders: responders(usual, first, first), want: "Duplicate value"},
		"N49 a name without a domain is refused":        {responders: responders(usual, "migrate"), want: "spec.evictionResponders[0].name"},
		"N49 the evictor is refused":                    {responders: responders(ptr.To[int32](100), evictorName), want: "spec.evictionResponders[0].name"},
		"N49 what is below kubernetes.io is refused":    {responders: responders(usual, "node.kubernetes.io/migrate"), want: "spec.evictionResponders[0].name"},
		"N50 no priority is refused":                    {responders: responders(nil, first), want: "spec.evictionResponders[0].priority: Required value"},
		"N50 a priority of 999 is refused":              {responders: responders(ptr.To[int32](999), first), want: "spec.evictionResponders[0].priority"},
		"N50 a priority of 1000 is accepted":            {responders: responders(ptr.To[int32](1000), first)},
		"N50 a priority of 100000 is accepted":          {responders: responders(ptr.To[int32](100000), first)},
		"N50 a higher priority is refused":              {responders: responders(ptr.To[int32](100001), first), want: "spec.evictionResponders[0].priority"},
		"N50 several of the same priority are accepted": {responders: responders(usual, first, second)},
		"N51 a group without responders is accepted":    {with: grouped},
		"N51 a group with responders is refused":        {responders: responders(usual, first), with: grouped, want: "evictionResponders"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod(namespace, "").Obj()
			pod.GenerateName = "web-"
			pod.Spec.EvictionResponders = tc.responders
			if tc.with != nil {
				tc.with(pod)
			}
			created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
			judge(t, tc.want, err)
			if err == nil {
				if diff := cmp.Diff(tc.responders, created.Spec.EvictionResponders); diff != "" {
					t.Errorf("what is stored (-want +got):\n%s", diff)
				}
			}
		})
	}

	t.Run("N52 the responders of a pod do not change", func(t *testing.T) {
		for name, change := range map[string]func(*corev1.Pod){
			"added":    func(p *corev1.Pod) { p.Spec.EvictionResponders = responders(usual, first, second) },
			"removed":  func(p *corev1.Pod) { p.Spec.EvictionResponders = nil },
			"priority": func(p *corev1.Pod) { p.Spec.EvictionResponders[0].Priority = ptr.To[int32](3000) },
		} {
			pod := builder.Pod(namespace, "").Obj()
			pod.GenerateName, pod.Spec.EvictionResponders = "web-", responders(usual, first)
			created := must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
			cluster.Eventually(t, name+" is refused", func(ctx context.Context) error {
				pod, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				change(pod)
				if _, err = pods.Update(ctx, pod, metav1.UpdateOptions{}); apierrors.IsInvalid(err) {
					return nil
				}
				return fmt.Errorf("got %w, want Invalid", err) // The scheduler writes pods, too.
			})
		}
	})
	t.Run("N53 pods have the responders of their template", func(t *testing.T) {
		deployment := builder.Deployment(namespace, "web").Obj()
		deployment.Spec.Template.Spec.EvictionResponders = responders(usual, first)
		created := must(kube.Client().AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}))(t)
		cluster.Eventually(t, "its pod has them", func(ctx context.Context) error {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(created.Spec.Selector)})
			if err != nil {
				return err
			}
			for _, pod := range list.Items {
				if len(pod.OwnerReferences) > 0 && cmp.Equal(responders(usual, first), pod.Spec.EvictionResponders) {
					return nil
				}
			}
			return fmt.Errorf("%d pods, none with them", len(list.Items))
		})
		t.Run("of any kind", func(t *testing.T) {
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
				Selector: created.Spec.Selector, Template: created.Spec.Template,
			}}
			stored := must(kube.Client().AppsV1().DaemonSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}))(t)
			if diff := cmp.Diff(responders(usual, first), stored.Spec.Template.Spec.EvictionResponders); diff != "" {
				t.Errorf("what is stored (-want +got):\n%s", diff)
			}
		})
	})
}
