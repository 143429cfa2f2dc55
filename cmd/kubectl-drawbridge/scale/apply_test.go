package scale

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// bench is a ReplicaSet of three pods on a server that can be interfered with.
type bench struct {
	t *testing.T
	*application
	server  client.WithWatch
	patches []map[string]any
}

func newBench(t *testing.T, interfere func(b *bench, scale *autoscalingv1.Scale) error) *bench {
	t.Helper()
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-of-web"}}
	set.Spec.Replicas = ptr.To[int32](3)
	objects := []client.Object{set}
	for name, cost := range map[string]string{"web-0": "", "web-1": "7", "web-2": ""} {
		pod := builder.Pod("shop", name).UID(types.UID("uid-of-" + name)).Node("a").Ready().Owner(*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
		if cost != "" {
			pod.Annotation(corev1.PodDeletionCost, cost)
		}
		objects = append(objects, pod.Obj())
	}
	b := &bench{t: t}
	b.server = fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(objects...).WithStatusSubresource(set).Build()
	options := cli.DefaultOptions()
	options.Clock = testingclock.NewFakeClock(time.Unix(0, 0))
	read := func(name string, into client.Object) client.Object {
		if err := b.server.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, into); err != nil {
			b.t.Fatal(err)
		}
		return into
	}
	set = read("web", &appsv1.ReplicaSet{}).(*appsv1.ReplicaSet)
	b.application = &application{
		Options: options, target: &target{kind: replicaSet, object: set, replicas: 3, set: set},
		going: []*corev1.Pod{read("web-0", &corev1.Pod{}).(*corev1.Pod), read("web-1", &corev1.Pod{}).(*corev1.Pod)},
	}
	b.Client = interceptor.NewClient(b.server, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(object)
			if err != nil {
				return err
			}
			sent := map[string]any{}
			if err := json.Unmarshal(data, &sent); err != nil {
				return err
			}
			b.patches = append(b.patches, sent["metadata"].(map[string]any))
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			to := &client.SubResourceUpdateOptions{}
			to.ApplyOptions(options)
			if err := interfere(b, to.SubResourceBody.(*autoscalingv1.Scale)); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, object, options...)
		},
	})
	return b
}

// costs are those of the pods on the server, "-" for none.
func (b *bench) costs() string {
	b.t.Helper()
	var all []string
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		pod := &corev1.Pod{}
		if err := b.server.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
			b.t.Fatal(err)
		}
		cost, ok := pod.Annotations[corev1.PodDeletionCost]
		if !ok {
			cost = "-"
		}
		all = append(all, cost)
	}
	return strings.Join(all, " ")
}

func (b *bench) set(name, cost string) {
	b.t.Helper()
	pod := &corev1.Pod{}
	if err := b.server.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		b.t.Fatal(err)
	}
	pod.Annotations[corev1.PodDeletionCost] = cost
	if err := b.server.Update(b.t.Context(), pod); err != nil {
		b.t.Fatal(err)
	}
}

func TestMarksAndScales(t *testing.T) {
	var sent *autoscalingv1.Scale
	atScale := ""
	b := newBench(t, func(b *bench, scale *autoscalingv1.Scale) error {
		sent, atScale = scale, b.costs()
		return nil
	})
	version := b.target.object.GetResourceVersion()
	if scaled, err := b.scale(t.Context(), 1); !scaled || err != nil {
		t.Fatalf("scaled %t, error %v", scaled, err)
	}
	if diff := cmp.Diff("-2147483648 -2147483648 -", atScale); diff != "" {
		t.Errorf("costs when it is scaled (-want +got):\n%s", diff)
	}
	if sent.Spec.Replicas != 1 || sent.UID != "uid-of-web" || sent.ResourceVersion != version {
		t.Errorf("scale %+v: want 1 replica, of UID uid-of-web and version %s", sent, version)
	}
	for i, pod := range b.going {
		want := map[string]any{"uid": string(pod.UID), "resourceVersion": pod.ResourceVersion, "annotations": map[string]any{corev1.PodDeletionCost: "-2147483648"}}
		if diff := cmp.Diff(want, b.patches[i]); diff != "" {
			t.Errorf("patch of pod %s (-want +got):\n%s", pod.Name, diff)
		}
	}
}

func TestWhatFailsIsTakenBack(t *testing.T) {
	errBroken := errors.New("the connection broke")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cases := map[string]struct {
		interfere func(*bench) error
		scaled    bool
		want      string
	}{
		"the server did not scale": {func(*bench) error { return errBroken }, false, "- 7 -"},
		"it was interrupted": {func(*bench) error {
			interrupt()
			return context.Canceled
		}, false, "- 7 -"},
		"a cost that someone has changed stays": {func(b *bench) error {
			b.set("web-0", "100")
			return errBroken
		}, false, "100 7 -"},
		"it was scaled, and only the answer was lost": {func(b *bench) error {
			set := b.target.object.DeepCopyObject().(*appsv1.ReplicaSet)
			set.Spec.Replicas = ptr.To[int32](1)
			if err := b.server.Update(b.t.Context(), set); err != nil {
				b.t.Fatal(err)
			}
			return errBroken
		}, true, "-2147483648 -2147483648 -"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(b *bench, _ *autoscalingv1.Scale) error { return tc.interfere(b) })
			scaled, err := b.scale(ctx, 1)
			if !scaled {
				if err == nil {
					t.Error("want an error")
				}
				if err := b.restore(ctx); err != nil {
					t.Error(err)
				}
			}
			if scaled != tc.scaled {
				t.Errorf("scaled %t, want %t: %v", scaled, tc.scaled, err)
			}
			if diff := cmp.Diff(tc.want, b.costs()); diff != "" {
				t.Errorf("costs (-want +got):\n%s", diff)
			}
		})
	}
}

// After ^C, too, it is said that all is as before.
func TestAnInterruptionIsTold(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	b := newBench(t, func(*bench, *autoscalingv1.Scale) error {
		interrupt()
		return context.Canceled
	})
	told := &strings.Builder{}
	b.Out, b.ErrOut = told, told
	plan := &Plan{Going: []Leaving{{Pod: b.going[0]}, {Pod: b.going[1]}}}
	err := (&options{Options: b.Options, replicas: 1}).apply(ctx, &cli.Connection{Client: b.Client}, b.target, plan)
	if !errors.Is(err, cli.ErrInterrupted) {
		t.Errorf("error %v, want ErrInterrupted", err)
	}
	if diff := cmp.Diff("interrupted: replicaset/web was not scaled, and all deletion costs are as before\n", told.String()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("- 7 -", b.costs()); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
}

// What has changed since the plan was made is not scaled by it.
func TestAnOldPlanIsNotCarriedOut(t *testing.T) {
	cases := map[string]struct {
		change func(*bench)
		want   string
	}{
		"a person has set a cost":  {func(b *bench) { b.set("web-1", "8") }, "- 8 -"},
		"another pod of that name": {func(b *bench) { b.going[1].UID, b.going[1].ResourceVersion = "uid-of-another", "1" }, "- 7 -"},
		"it was scaled by others":  {func(b *bench) { b.target.object.SetGeneration(5) }, "- 7 -"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(*bench, *autoscalingv1.Scale) error {
				t.Error("it was scaled")
				return nil
			})
			tc.change(b)
			scaled, err := b.scale(t.Context(), 1)
			if scaled || err == nil {
				t.Errorf("scaled %t, error %v", scaled, err)
			}
			if err := b.restore(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, b.costs()); diff != "" {
				t.Errorf("costs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlySet(t *testing.T) {
	d := builder.Deployment("shop", "web").UID("uid-of-web").Obj()
	set := func(name string, owned bool, spec, status int32) appsv1.ReplicaSet {
		s := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if owned {
			s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		}
		s.Spec.Replicas, s.Status.Replicas = &spec, status
		return s
	}
	cases := map[string]struct {
		sets       []appsv1.ReplicaSet
		generation int64
		want, err  string
	}{
		"one":                                    {[]appsv1.ReplicaSet{set("a", true, 3, 3), set("old", true, 0, 0), set("other", false, 3, 3)}, 0, "a", ""},
		"two are wanted":                         {[]appsv1.ReplicaSet{set("a", true, 3, 3), set("b", true, 1, 0)}, 0, "", "in the middle of a rollout, with pods of replicasets a and b"},
		"the old one still has pods":             {[]appsv1.ReplicaSet{set("a", true, 3, 3), set("b", true, 0, 1)}, 0, "", "in the middle of a rollout"},
		"none":                                   {nil, 0, "", "has no pods"},
		"its controller has not seen the change": {[]appsv1.ReplicaSet{set("a", true, 3, 3)}, 1, "", "its controller has not seen it yet"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := d.DeepCopy()
			changed.Generation = tc.generation
			got, err := onlySet(changed, tc.sets)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || got.Name != tc.want {
				t.Errorf("got %v and error %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestScales(t *testing.T) {
	web := &target{kind: deployment, object: builder.Deployment("shop", "web").Obj()}
	cases := map[string]struct {
		ref  autoscalingv2.CrossVersionObjectReference
		want bool
	}{
		"it":                      {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, true},
		"by another version":      {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1beta2", Kind: "Deployment", Name: "web"}, true},
		"another one":             {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "db"}, false},
		"another kind":            {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}, false},
		"a kind of another group": {autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Deployment", Name: "web"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			autoscaler := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: tc.ref}}
			if got := scales(autoscaler, web); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
