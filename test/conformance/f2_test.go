package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// F2 UPDATE and DELETE of spec.
func TestConformance_F2(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)

	cases := map[string]writeCase{
		"16 the pod's name is immutable": {
			write: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.Name = "web-2" },
			want:  "target is immutable",
		},
		"16 the pod's UID is immutable": {
			write: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.UID = "other" },
			want:  "target is immutable",
		},
		"16 the pod cannot be taken out of the target": {
			write: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod = nil },
			want:  "pod must be set",
		},
		"17 a requester can be added": {
			write: requesters("drain.example.com", "other.example.com"),
			want:  accepted,
		},
		"17 a requester can be removed": {
			given: []change{requesters("drain.example.com", "other.example.com")},
			write: requesters("other.example.com"),
			want:  accepted,
		},
		"17 the last requester can be removed": {
			write: requesters(),
			want:  accepted,
		},
		"17, 97 a request without requesters cannot be revived": {
			given: []change{requesters()},
			write: requesters("drain.example.com"),
			want:  "requesters was empty, so this request is canceled for good",
		},
		"17 a request without requesters can still be written": {
			given: []change{requesters()},
			write: func(er *v1alpha1.EvictionRequest) { er.Labels = map[string]string{"a": "b"} },
			want:  accepted,
		},
		"18 100 requesters are accepted on update": {
			write: requesters(manyNames(v1alpha1.MaxRequesters)...),
			want:  accepted,
		},
		"18 101 requesters are refused on update": {
			write: requesters(manyNames(v1alpha1.MaxRequesters + 1)...),
			want:  "must have at most 100 items",
		},
		"18 duplicate requesters are refused on update": {
			write: requesters("drain.example.com", "drain.example.com"),
			want:  "Duplicate value",
		},
		"18 a malformed requester is refused on update": {
			write: requesters("drain.example.com", "drain"),
			want:  "must be a fully qualified domain name",
		},
		"a negative grace period is refused": {
			write: func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters[0].GracePeriodSeconds = new(int64(-1)) },
			want:  "gracePeriodSeconds",
		},
		"a malformed lease name is refused": {
			write: func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters[0].LeaseName = "A_b" },
			want:  "leaseName must be the name of a Lease",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tc.run(t, c, ns, false) })
	}

	t.Run("17 an explicitly empty list of requesters is the same as none", func(t *testing.T) {
		er := createRequest(t, c, ns)
		mergePatch(t, c, er, `{"spec":{"requesters":[]}}`, accepted)
		mergePatch(t, c, er, `{"spec":{"requesters":[{"name":"drain.example.com"}]}}`, "requesters was empty")
	})

	t.Run("21 each requester applies and withdraws its own entry", func(t *testing.T) {
		uid := types.UID("21-" + ns)
		apply := func(manager string, names ...string) {
			t.Helper()
			spec := applyv1alpha1.EvictionRequestSpec().WithTarget(applyv1alpha1.EvictionTarget().
				WithPod(applyv1alpha1.LocalPodReference().WithName("web-1").WithUID(uid)))
			for _, name := range names {
				spec.WithRequesters(applyv1alpha1.Requester().WithName(name))
			}
			if err := c.Apply(t.Context(), applyv1alpha1.EvictionRequest(string(uid), ns).WithSpec(spec), client.FieldOwner(manager)); err != nil {
				t.Fatalf("apply as %s: %v", manager, err)
			}
		}
		want := func(names ...string) {
			t.Helper()
			stored := &v1alpha1.EvictionRequest{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: string(uid)}, stored); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range stored.Spec.Requesters {
				got = append(got, r.Name)
			}
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		}
		apply("a", "a.example.com")
		apply("b", "b.example.com")
		want("a.example.com", "b.example.com")
		apply("a", "a.example.com")
		want("a.example.com", "b.example.com")
		apply("a")
		want("b.example.com")
		apply("b")
		want()
	})

	t.Run("21 the last one to withdraw its entry may have been joined to a list that somebody else wrote", func(t *testing.T) {
		// Who writes the whole list owns it, also when nothing in it is his any more.
		// Server-side apply makes null of it when the last item goes, not nothing.
		er := createRequest(t, c, ns)
		apply := func(names ...string) {
			t.Helper()
			spec := applyv1alpha1.EvictionRequestSpec().WithTarget(applyv1alpha1.EvictionTarget().
				WithPod(applyv1alpha1.LocalPodReference().WithName(er.Spec.Target.Pod.Name).WithUID(er.Spec.Target.Pod.UID)))
			for _, name := range names {
				spec.WithRequesters(applyv1alpha1.Requester().WithName(name))
			}
			if err := c.Apply(t.Context(), applyv1alpha1.EvictionRequest(er.Name, ns).WithSpec(spec), client.FieldOwner("joins")); err != nil {
				t.Fatalf("apply %v: %v", names, err)
			}
		}
		apply("joins.example.com")
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), er); err != nil {
			t.Fatal(err)
		}
		requesters("joins.example.com")(er)
		if err := c.Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		apply()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(er), er); err != nil {
			t.Fatal(err)
		}
		// Its writer owns the entry, too, after the update.
		requesters()(er)
		if err := c.Update(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		mergePatch(t, c, er, `{"spec":{"requesters":[{"name":"drain.example.com"}]}}`, "requesters was empty")
	})

	t.Run("22 the item of a requester is replaced as a whole", func(t *testing.T) {
		uid := types.UID("22-" + ns)
		apply := func(manager string, requester *applyv1alpha1.RequesterApplyConfiguration) {
			t.Helper()
			spec := applyv1alpha1.EvictionRequestSpec().
				WithTarget(applyv1alpha1.EvictionTarget().WithPod(applyv1alpha1.LocalPodReference().WithName("web-1").WithUID(uid))).
				WithRequesters(requester)
			err := c.Apply(t.Context(), applyv1alpha1.EvictionRequest(string(uid), ns).WithSpec(spec), client.FieldOwner(manager), client.ForceOwnership)
			if err != nil {
				t.Fatalf("apply as %s: %v", manager, err)
			}
		}
		apply("a", applyv1alpha1.Requester().WithName("a.example.com").WithLeaseName("lease").WithGracePeriodSeconds(5))
		apply("b", applyv1alpha1.Requester().WithName("a.example.com").WithGracePeriodSeconds(7))
		stored := &v1alpha1.EvictionRequest{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: string(uid)}, stored); err != nil {
			t.Fatal(err)
		}
		want := []v1alpha1.Requester{{Name: "a.example.com", GracePeriodSeconds: new(int64(7))}}
		if diff := cmp.Diff(want, stored.Spec.Requesters); diff != "" {
			t.Errorf("requesters (-want +got):\n%s", diff)
		}
	})
}

// mergePatch patches a request and compares the answer.
func mergePatch(t *testing.T, c client.Client, er *v1alpha1.EvictionRequest, patch, want string) {
	t.Helper()
	checkAnswer(t, c.Patch(t.Context(), er.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), want)
}

// Statements 19 and 20: so do writing the spec and deleting.
func TestConformance_F2_Authorization(t *testing.T) {
	admin := asAdmin(t)
	const refused = authorizationPolicy
	may := []rbacv1.PolicyRule{writeRequests, deletePod("web-1")}
	mayNot := []rbacv1.PolicyRule{writeRequests, deletePod("web-2")}

	cases := map[string]struct {
		rules []rbacv1.PolicyRule
		act   func(context.Context, client.Client, *v1alpha1.EvictionRequest) error
		want  string
	}{
		"19 without permission a requester cannot be added": {
			mayNot, addRequester, refused,
		},
		"19 without permission a requester cannot be removed": {
			mayNot, removeRequesters, refused,
		},
		"19 with permission a requester can be added": {
			may, addRequester, accepted,
		},
		"19 with permission a requester can be removed": {
			may, removeRequesters, accepted,
		},
		"19 without permission labels can be written": {
			mayNot,
			func(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
				er.Labels = map[string]string{"a": "b"}
				return c.Update(ctx, er)
			},
			accepted,
		},
		"20 without permission it cannot be deleted": {
			mayNot,
			func(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
				return c.Delete(ctx, er)
			},
			refused,
		},
		"20 with permission it can be deleted": {
			may,
			func(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
				return c.Delete(ctx, er)
			},
			accepted,
		},
		"20 without permission it cannot be deleted together with others": {
			mayNot,
			func(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
				return c.DeleteAllOf(ctx, &v1alpha1.EvictionRequest{}, client.InNamespace(er.Namespace))
			},
			refused,
		},
	}
	i := 0
	for name, tc := range cases {
		i++
		user := fmt.Sprintf("updater-%d", i)
		t.Run(name, func(t *testing.T) {
			ns := kube.Namespace(t)
			if err := grant(t.Context(), admin, ns, user, tc.rules...); err != nil {
				t.Fatal(err)
			}
			er := createRequest(t, admin, ns)
			checkAnswer(t, tc.act(t.Context(), as(t, user), er.DeepCopy()), tc.want)
			err := admin.Get(t.Context(), client.ObjectKeyFromObject(er), &v1alpha1.EvictionRequest{})
			if tc.want == refused && err != nil {
				t.Errorf("refused, but: %v", err)
			}
		})
	}

	t.Run("19, 20 Drawbridge itself is exempt", func(t *testing.T) {
		c := asDrawbridge(t)
		er := createRequest(t, c, kube.Namespace(t))
		if err := addRequester(t.Context(), c, er); err != nil {
			t.Error(err)
		}
		if err := c.Delete(t.Context(), er); err != nil {
			t.Error(err)
		}
	})

	t.Run("20 the deletion of a namespace is not held up", func(t *testing.T) {
		t.Parallel() // It waits for kube-controller-manager.
		ns := kube.Namespace(t)
		er := createRequest(t, admin, ns)
		if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, admin, er)
	})

	t.Run("20 the garbage collector is not held up", func(t *testing.T) {
		t.Parallel() // It waits for kube-controller-manager.
		ns := kube.Namespace(t)
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
		if err := admin.Create(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		er := createRequest(t, admin, ns, func(er *v1alpha1.EvictionRequest) {
			er.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		})
		if err := admin.Delete(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		waitGone(t, admin, er)
	})
}

func addRequester(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
	er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: "other.example.com"})
	return c.Update(ctx, er)
}

func removeRequesters(ctx context.Context, c client.Client, er *v1alpha1.EvictionRequest) error {
	er.Spec.Requesters = nil
	return c.Update(ctx, er)
}

// waitGone waits until an object does not exist any more.
func waitGone(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	await(t, object.GetName()+" to be gone", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("it is there, with finalizers %q", object.GetFinalizers())
	})
}

// A pod that got a malformed annotation before the policy existed lives and dies
// like any other.
func TestMalformedPodAnnotationFromBeforeThePolicy(t *testing.T) {
	c := asAdmin(t)
	ns := kube.Namespace(t)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: podInterceptorsPolicy}}
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := kube.KubeconfigFile("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	// The policy has to come back whatever happens here: other tests need it.
	reinstall := func(ctx context.Context) error {
		if err := install.Run(ctx, install.Options{Kubeconfig: kubeconfig, Values: chartValues()}); err != nil {
			return err
		}
		return install.WaitReady(ctx, kube.Config())
	}
	t.Cleanup(func() {
		if t.Failed() {
			if err := reinstall(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})

	pod := newPod(ns, "old")
	pod.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "Not A Name,,"}
	await(t, "the policy not to be enforced any more", func(ctx context.Context) error { return c.Create(ctx, pod) })
	if err := reinstall(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The scheduler writes to the pod, too: each step works on what is stored.
	for _, step := range []struct {
		name string
		act  func() error
	}{
		{"a finalizer is added", func() error {
			pod.Finalizers = []string{"example.com/f"}
			return c.Update(t.Context(), pod)
		}},
		{"a label is added", func() error {
			pod.Labels = map[string]string{"a": "b"}
			return c.Update(t.Context(), pod)
		}},
		{"the status is written", func() error {
			pod.Status.Message = "hello"
			return c.Status().Update(t.Context(), pod)
		}},
		{"an ephemeral container is added", func() error {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{
					Name: "debug", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				},
			}}
			return c.SubResource("ephemeralcontainers").Update(t.Context(), pod)
		}},
		{"it is bound to a node", func() error {
			if pod.Spec.NodeName != "" {
				return nil // The scheduler was faster.
			}
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
			return c.SubResource("binding").Create(t.Context(), pod, binding)
		}},
		{"it is deleted", func() error { return c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)) }},
		{"the finalizer is removed", func() error {
			pod.Finalizers = nil
			return c.Update(t.Context(), pod)
		}},
	} {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			return step.act()
		})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	waitGone(t, c, pod)
}
