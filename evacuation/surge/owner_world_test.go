package surge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sdk "github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestEvacuateAPodOfARollout(t *testing.T) {
	w := newWorld(rolledSet("web-old", 0), rolledSet("web-a", 1), rolledPod("web-1", "web-a"))

	want := sdk.Progress{Message: "Waiting for a replacement to become available.", CheckAfter: recheck}
	if diff := cmp.Diff(want, w.evacuate(t, "web-1")); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if rec, up := handedUp(w.get(t, "web-1")); !up || !rec.frees() {
		t.Fatalf("it was not set free: %+v", rec)
	}
	if diff := cmp.Diff([]string{"Pod PodHandedUp", "ReplicaSet PodHandedUp"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := w.evacuate(t, "web-1"); got.Done || w.writes != 1 {
		t.Errorf("without a replacement: %+v, %d writes", got, w.writes)
	}
	if err := w.client.Create(t.Context(), rolledPod("web-2", "web-a")); err != nil {
		t.Fatal(err)
	}
	want = sdk.Progress{Done: true, Message: "Replaced: ReplicaSet web-a has 1 of 1 replicas available without this pod."}
	if diff := cmp.Diff(want, w.evacuate(t, "web-1")); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
}

// What a Rollout's pods are asked before they are set free is gathered, and what is not
// theirs does not count.
func TestWhatKeepsAPodOfARollout(t *testing.T) {
	by := func(selector map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.ServiceSpec{Selector: selector}}
	}
	foreign := rolledSet("web-b", 1)
	foreign.OwnerReferences[0].UID = "another"
	alone := rolledSet("web-a", 1)
	alone.OwnerReferences = nil
	cases := map[string]struct {
		set  *appsv1.ReplicaSet
		more client.Object
		want string
	}{
		"a Service that needs its label":        {rolledSet("web-a", 1), by(map[string]string{rolloutsTie: hash}), "Not replaced beforehand: Service web selects its pods by the label rollouts-pod-template-hash, which the pod would lose, and it would stop serving before there is a replacement."},
		"a Service that does not":               {rolledSet("web-a", 1), by(map[string]string{builder.AppLabel: "web"}), ""},
		"another ReplicaSet of the Rollout":     {rolledSet("web-a", 1), rolledSet("web-b", 1), "Waiting for the rollout of the owner of ReplicaSet web-a (ReplicaSet web-b wants pods, too)."},
		"an old ReplicaSet of the Rollout":      {rolledSet("web-a", 1), rolledSet("web-b", 0), ""},
		"a ReplicaSet of another Rollout":       {rolledSet("web-a", 1), foreign, ""},
		"a ReplicaSet without an owner":         {alone, foreign, "Not replaced beforehand: ReplicaSet web-a has no owner that rolls it out: use a Deployment instead of it, or run more replicas than its budget wants."},
		"a ReplicaSet whose Deployment is gone": {replicaSet("web-a", 2, 1), foreign, "Not replaced beforehand: the pod belongs to no Deployment."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.set, tc.more, rolledPod("web-1", "web-a"))
			got := w.evacuate(t, "web-1")
			_, up := handedUp(w.get(t, "web-1"))
			if may := tc.want == ""; up != may || !may && got.Message != tc.want {
				t.Errorf("set free: %t, %+v, want %q", up, got, tc.want)
			}
		})
	}
}

// One of a Rollout's two pods is set free at a time, and the other one hears when it may.
func TestPodsOfARolloutAreSetFreeOneByOne(t *testing.T) {
	w := newWorld(rolledSet("web-a", 2), rolledPod("web-1", "web-a"), rolledPod("web-2", "web-a"))
	w.evacuate(t, "web-1")
	const waits = "Waiting for other pods of ReplicaSet web-a: 1 at a time."
	if got := w.evacuate(t, "web-2"); got.Message != waits {
		t.Errorf("the second: %+v, want %q", got, waits)
	}
	names := map[string]bool{}
	for _, key := range w.following.of(t.Context(), w.get(t, "web-1")) {
		names[key.Name] = true
	}
	if !names["web-2"] {
		t.Errorf("an event of the first wakes %v", names)
	}
	for name, obj := range map[string]client.Object{
		"a pod of the ReplicaSet": rolledPod("web-3", "web-a"), "the ReplicaSet": rolledSet("web-a", 2), "a new ReplicaSet of the Rollout": rolledSet("web-b", 0),
	} {
		if keys := w.following.of(t.Context(), obj); len(keys) != 2 {
			t.Errorf("an event of %s wakes %v, want both", name, keys)
		}
	}
	w.remove(t, "web-1")
	w.evacuate(t, "web-2")
	if _, up := handedUp(w.get(t, "web-2")); !up {
		t.Error("the second was not set free when the first had gone")
	}
}

func TestCancelGivesAPodOfARolloutBack(t *testing.T) {
	w := newWorld(rolledSet("web-a", 1), freed(t, rolledPod("web-1", "web-a"), t0))
	w.cancel(t, "web-1")
	now := w.get(t, "web-1")
	if diff := cmp.Diff(rolledPod("web-1", "web-a").OwnerReferences, now.OwnerReferences); diff != "" || now.Labels[rolloutsTie] != hash {
		t.Errorf("labels %v, owners (-want +got):\n%s", now.Labels, diff)
	}
	if diff := cmp.Diff([]string{"Pod PodGivenBack", "ReplicaSet PodGivenBack"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Without a running manager, too.
func TestGiveBackToTheReplicaSetOfARollout(t *testing.T) {
	alone := freed(t, rolledPod("web-1", "web-a"), t0)
	cases := map[string]struct {
		objects []client.Object
		want    Returned
	}{
		"as it was":                      {[]client.Object{rolledSet("web-a", 1)}, ReturnedBack},
		"its ReplicaSet wants no pods":   {[]client.Object{rolledSet("web-a", 0)}, ReturnedBack},
		"its ReplicaSet is gone":         {nil, ReturnedNothing},
		"another ReplicaSet of its name": {[]client.Object{func() *appsv1.ReplicaSet { set := rolledSet("web-a", 1); set.UID = "other"; return set }()}, ReturnedNothing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := alone.DeepCopy()
			p.ResourceVersion = ""
			api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(append(tc.objects, p)...).Build()
			got, err := GiveBack(t.Context(), api, keyOf(ns, "web-1"))
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("returned %d, want %d", got, tc.want)
			}
			now := &corev1.Pod{}
			if err := api.Get(t.Context(), keyOf(ns, "web-1"), now); err != nil {
				t.Fatal(err)
			}
			if back := metav1.GetControllerOf(now) != nil && now.Labels[rolloutsTie] == hash; back != (tc.want == ReturnedBack) {
				t.Errorf("labels %v, owners %v", now.Labels, now.OwnerReferences)
			}
		})
	}
}

// What the informers keep of a ReplicaSet that is treated like a Deployment is enough.
func TestTheSlimReplicaSetDecidesTheSame(t *testing.T) {
	for name, change := range map[string]func(*appsv1.ReplicaSet){
		"as it is":    func(*appsv1.ReplicaSet) {},
		"unseen":      func(set *appsv1.ReplicaSet) { set.Generation++ },
		"no quota":    cannot,
		"none wanted": func(set *appsv1.ReplicaSet) { set.Spec.Replicas = ptr.To[int32](0) },
		"min ready":   func(set *appsv1.ReplicaSet) { set.Spec.MinReadySeconds = 3600 },
		"no label": func(set *appsv1.ReplicaSet) {
			set.Spec.Selector.MatchLabels = map[string]string{builder.AppLabel: "web"}
		},
		"deleted": func(set *appsv1.ReplicaSet) { set.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) },
	} {
		t.Run(name, func(t *testing.T) {
			full := rolledSet("web-a", 1)
			change(full)
			full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "argo"}}
			slim, err := slimReplicaSet(full)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range []*input{beforeFree(), free(t)} {
				in.pods = []corev1.Pod{*rolledPod("web-2", "web-a")}
				in.now = in.now.Add(time.Second)
				got := map[string]decision{}
				for which, set := range map[string]*appsv1.ReplicaSet{"full": full, "slim": slim.(*appsv1.ReplicaSet)} {
					in.set, in.deployment = set, nil
					if _, up := handedUp(in.pod); up || mayBeLeft(set) {
						in.deployment = asDeployment(set)
					}
					got[which] = step(in)
				}
				if diff := cmp.Diff(got["full"], got["slim"], cmp.AllowUnexported(decision{})); diff != "" {
					t.Errorf("decision (-full +slim):\n%s", diff)
				}
			}
			if slim.(*appsv1.ReplicaSet).ManagedFields != nil {
				t.Error("managed fields were kept")
			}
		})
	}
}
