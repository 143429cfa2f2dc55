package surge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sdk "github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

func (w *world) evacuate(t *testing.T, name string) sdk.Progress {
	t.Helper()
	progress, err := w.Evacuate(t.Context(), target(name))
	if err != nil {
		t.Fatal(err)
	}
	return progress
}

func TestEvacuate(t *testing.T) {
	w := newWorld(deployment(1), replicaSet("web-old", 1, 0), replicaSet("web-new", 2, 1), pod("web-1", "web-new"))

	got := w.evacuate(t, "web-1")
	want := sdk.Progress{Message: "Waiting for a replacement to become available.", CheckAfter: recheck}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if _, up := handedUp(w.get(t, "web-1")); !up {
		t.Fatal("it was not handed up")
	}
	if diff := cmp.Diff([]string{"Pod PodHandedUp", "Deployment PodHandedUp"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := w.evacuate(t, "web-1"); got.Done || w.writes != 1 {
		t.Errorf("without a replacement: %+v, %d writes", got, w.writes)
	}

	if err := w.client.Create(t.Context(), ptr.To(replacement("web-2"))); err != nil {
		t.Fatal(err)
	}
	got = w.evacuate(t, "web-1")
	want = sdk.Progress{Done: true, Message: "Replaced: Deployment web has 1 of 1 replicas available without this pod."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
	if w.writes != 1 {
		t.Errorf("%d writes, want the one", w.writes)
	}
}

// A pod that is declined is not touched (statement 110).
func TestWhatIsDeclinedIsNotTouched(t *testing.T) {
	writer := pod("web-1", "web-new")
	writer.Spec.Volumes = claimVolume("data")
	data := &corev1.PersistentVolumeClaim{}
	data.Namespace, data.Name = ns, "data"
	data.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	w := newWorld(deployment(1), replicaSet("web-new", 2, 1), writer, data)

	got := w.evacuate(t, "web-1")
	if diff := cmp.Diff(sdk.Progress{Done: true, Message: "Not replaced beforehand: claim data can be mounted on one node only."}, got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if w.writes != 0 {
		t.Errorf("%d writes", w.writes)
	}
	if diff := cmp.Diff([]string{"*v1.Pod SurgeDeclined"}, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestWhatFailsIsUndoneAndNotTriedAgain(t *testing.T) {
	w := newWorld(deployment(1), replicaSet("web-new", 2, 1), pod("web-1", "web-new"))
	w.evacuate(t, "web-1")
	w.clock.Step(10 * time.Minute)
	const message = "Not replaced beforehand: no replacement became available within 10m0s"
	want := sdk.Progress{Message: message, CheckAfter: recheckSoon}
	if diff := cmp.Diff(want, w.evacuate(t, "web-1")); diff != "" {
		t.Errorf("after the deadline (-want +got):\n%s", diff)
	}
	now := w.get(t, "web-1")
	if diff := cmp.Diff(pod("web-1", "web-new").OwnerReferences, now.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}

	// The manager dies before this is reported; the next one starts from the pod.
	next := newWorld(deployment(1), replicaSet("web-new", 2, 1), now)
	want = sdk.Progress{Done: true, Message: message}
	if diff := cmp.Diff(want, next.evacuate(t, "web-1")); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	if next.writes != 0 {
		t.Errorf("%d writes of the next manager", next.writes)
	}
}

// A budget goes on to allow an eviction for a moment after the pod was given back.
// If the other one went at the same time, because it is one too many for its
// ReplicaSet, there would be fewer than before.
func TestNobodyIsEvictedBeforeTheSurplusHasGone(t *testing.T) {
	d := deployment(1)
	d.Spec.MinReadySeconds = 3600
	w := newWorld(d, replicaSet("web-new", 2, 1), pod("web-1", "web-new"))
	w.evacuate(t, "web-1")
	if err := w.client.Create(t.Context(), ptr.To(replacement("web-2"))); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(10 * time.Minute)
	for i := range 3 {
		if got := w.evacuate(t, "web-1"); got.Done || got.CheckAfter != recheckSoon {
			t.Errorf("look %d: %+v", i, got)
		}
	}
	w.remove(t, "web-2")
	if got := w.evacuate(t, "web-1"); !got.Done || !strings.HasPrefix(got.Message, "Not replaced beforehand: no replacement") {
		t.Errorf("without the surplus: %+v", got)
	}
	want := []string{"Pod PodHandedUp", "Deployment PodHandedUp", "Pod PodGivenBack", "Deployment PodGivenBack"}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// With a thousand pods that wait, every change of one of them would be a thousand
// looks at a thousand pods.
func TestAPodThatWaitsDoesNotLookAtTheOthers(t *testing.T) {
	w := newWorld(deployment(3), replicaSet("web-new", 2, 3), pod("web-1", "web-new"), pod("web-2", "web-new"), pod("web-3", "web-new"))
	looks := func() int {
		in, err := w.gather(t.Context(), subject{pod: keyOf(ns, "web-1"), uid: "web-1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		return len(in.pods)
	}
	if n := looks(); n != 0 {
		t.Errorf("it looks at %d pods, want none", n)
	}
	w.evacuate(t, "web-1")
	if n := looks(); n != 2 {
		t.Errorf("once it is handed up it looks at %d pods, want the 2 others", n)
	}
}

// Three pods at a time, and a cache that shows none of what was written: still no
// more are handed up than maxSurge and the cluster's limit allow.
func TestLimitsHoldAgainstAStaleCache(t *testing.T) {
	cases := map[string]struct {
		maxSurge string
		cluster  int
		want     int
	}{
		"maxSurge of one":         {"1", 0, 1},
		"maxSurge of two":         {"2", 0, 2},
		"the cluster's limit":     {"3", 2, 2},
		"limits nobody gets near": {"50%", 9, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := deployment(8)
			d.Spec.Strategy = deploymentStrategy(tc.maxSurge)
			objects := []client.Object{d, replicaSet("web-new", 2, 8)}
			for i := range 3 {
				objects = append(objects, pod(fmt.Sprintf("web-%d", i), "web-new"))
			}
			w := newWorld(objects...)
			w.Policy.ClusterLimit = tc.cluster
			stale := newWorld(objects...)
			w.handUps.cache = stale.client
			w.Client = writeTo{stale.client, w.client}
			var wg sync.WaitGroup
			for i := range 3 { // The SDK never makes two calls for one pod at a time.
				wg.Go(func() {
					for range 3 {
						if _, err := w.Evacuate(context.Background(), target(fmt.Sprintf("web-%d", i))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			ups := 0
			for i := range 3 {
				if _, up := handedUp(w.get(t, fmt.Sprintf("web-%d", i))); up {
					ups++
				}
			}
			if ups != tc.want {
				t.Errorf("%d were handed up, want %d", ups, tc.want)
			}
		})
	}
}

// What we have handed up is handed up, whatever the cache shows.
func TestAStaleCacheIsNotAsked(t *testing.T) {
	objects := []client.Object{deployment(1), replicaSet("web-new", 2, 1), pod("web-1", "web-new")}
	w, stale := newWorld(objects...), newWorld(objects...)
	w.Client, w.handUps.cache = writeTo{stale.client, w.client}, stale.client
	w.evacuate(t, "web-1")
	if err := stale.client.Create(t.Context(), replicaSet("web-newer", 3, 1)); err != nil { // By which the pod would have to wait.
		t.Fatal(err)
	}
	const want = "Waiting for a replacement: Deployment web has 0 of 1 replicas available without this pod."
	if got := w.evacuate(t, "web-1").Message; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// writeTo reads from a cache and writes to the API server.
type writeTo struct {
	client.Client
	server client.Client
}

func (w writeTo) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.server.Patch(ctx, obj, patch, opts...)
}

// A place is free again when its pod is gone, given back, or was never taken.
func TestPlacesBecomeFree(t *testing.T) {
	timeout := apierrors.NewTimeoutError("too slow", 1)
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1", errors.New("no"))
	cases := map[string]struct {
		fail error
		made bool
		then []string
		want bool
	}{
		"taken":                                 {},
		"gone":                                  {then: []string{"remove"}, want: true},
		"ended, though its object stays":        {then: []string{"end"}, want: true},
		"given back":                            {then: []string{"cancel"}, want: true},
		"refused":                               {fail: denied, want: true},
		"nobody knows":                          {fail: timeout},
		"nobody knows, and it is gone":          {fail: timeout, made: true, then: []string{"remove"}, want: true},
		"nobody knows, and it has ended":        {fail: timeout, then: []string{"end"}, want: true},
		"it turns out to be taken":              {fail: timeout, made: true, then: []string{"evacuate"}},
		"it was taken, and the pod is gone":     {fail: timeout, made: true, then: []string{"evacuate", "remove"}, want: true},
		"nobody knows, and then it is canceled": {fail: timeout, made: true, then: []string{"cancel"}, want: true},
		"not made, and then it is canceled":     {fail: timeout, then: []string{"cancel"}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(deployment(2), replicaSet("web-new", 2, 2), pod("web-1", "web-new"), pod("web-2", "web-new"))
			w.fail, w.made = tc.fail, tc.made
			progress, err := w.Evacuate(t.Context(), target("web-1"))
			if told := strings.Contains(progress.Message, "cannot be handed up"); (err != nil) != (tc.fail == timeout) || told != (tc.fail == denied) { //nolint:errorlint // They are the same.
				t.Fatalf("%+v, %v", progress, err)
			}
			for _, step := range tc.then {
				switch step {
				case "evacuate":
					w.evacuate(t, "web-1")
				case "remove":
					w.remove(t, "web-1")
				case "end":
					w.end(t, "web-1")
				case "cancel":
					w.cancel(t, "web-1")
				}
			}
			w.evacuate(t, "web-2")
			if _, up := handedUp(w.get(t, "web-2")); up != tc.want {
				t.Errorf("the next one was handed up: %t, want %t", up, tc.want)
			}
		})
	}
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	if err := w.client.Delete(t.Context(), w.get(t, name)); err != nil {
		t.Fatal(err)
	}
}

// end is what the kubelet does to a pod that it evicts: the object stays.
func (w *world) end(t *testing.T, name string) {
	t.Helper()
	p := w.get(t, name)
	p.Status.Phase = corev1.PodFailed
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func (w *world) cancel(t *testing.T, name string) {
	t.Helper()
	if err := w.Cancel(t.Context(), target(name)); err != nil {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	cases := map[string]struct {
		change     func(d client.Object)
		wantBack   bool
		wantJoined []string
		wantErr    error
	}{
		"gives the pod back":                  {wantBack: true},
		"asks for what cannot be given back":  {change: func(d client.Object) { d.GetAnnotations()[revisionAnnotation] = "3" }, wantJoined: []string{"web-1"}},
		"waits until the revision is certain": {change: func(d client.Object) { d.SetGeneration(8) }, wantErr: errNotObserved},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := deployment(1)
			if tc.change != nil {
				tc.change(d)
			}
			w := newWorld(d, replicaSet("web-new", 2, 1), up(t, pod("web-1", "web-new"), t0))
			if err := w.Cancel(t.Context(), target("web-1")); !errors.Is(err, tc.wantErr) {
				t.Fatalf("error %v, want %v", err, tc.wantErr)
			}
			if _, up := handedUp(w.get(t, "web-1")); up == tc.wantBack {
				t.Errorf("handed up: %t", up)
			}
			if diff := cmp.Diff(tc.wantJoined, w.joined); diff != "" {
				t.Errorf("evictions asked for (-want +got):\n%s", diff)
			}
			if err := w.Cancel(t.Context(), target("nobody")); err != nil {
				t.Errorf("a pod that is gone: %v", err)
			}
		})
	}
}

// Events reach the requests that care, and only those.
func TestFollower(t *testing.T) {
	w := newWorld(deployment(1), replicaSet("web-new", 2, 1), pod("web-1", "web-new"))
	w.Policy.ClusterLimit = 5
	w.evacuate(t, "web-1")
	of := func(obj client.Object) []string {
		var names []string
		for _, key := range w.following.of(t.Context(), obj) {
			names = append(names, key.Name)
		}
		return names
	}
	other := up(t, pod("else-1", "else"), t0)
	other.OwnerReferences[1].UID = "another"
	cases := map[string]struct {
		obj  client.Object
		want []string
	}{
		"its Deployment":                {deployment(1), []string{"web-1"}},
		"its ReplicaSet":                {replicaSet("web-new", 2, 1), []string{"web-1"}},
		"a new ReplicaSet":              {replicaSet("web-newer", 3, 0), []string{"web-1"}},
		"a pod of its ReplicaSet":       {pod("web-2", "web-new"), []string{"web-1"}},
		"a pod of another":              {pod("else-1", "else"), nil},
		"another one that is handed up": {other, []string{"web-1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, of(tc.obj)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	wantNone := func(when string) {
		if got := of(deployment(1)); got != nil || len(w.following.known)+len(w.following.requests) != 0 {
			t.Errorf("%s: %v, %v", when, got, w.following)
		}
	}
	w.cancel(t, "web-1")
	wantNone("after Cancel")
	w.evacuate(t, "web-1")
	w.end(t, "web-1") // Nobody calls Cancel then.
	w.evacuate(t, "web-1")
	wantNone("after the pod has ended")
}
