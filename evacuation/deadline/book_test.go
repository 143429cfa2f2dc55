package deadline

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

var (
	noon    = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	claims  = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	ofClaim = translate.DeadlineKinds()[0]
)

// newBook is a book whose controller lives as long as the test. It tells which nodes it wakes.
func newBook(t *testing.T, refusal error, objects ...runtime.Object) (*Book, *testingclock.FakeClock, chan string) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{claims.GroupVersion()})
	mapper.Add(claims.GroupVersion().WithKind("NodeClaim"), meta.RESTScopeRoot)
	served := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{claims: "NodeClaimList"}, objects...)
	if refusal != nil {
		served.PrependReactor("list", "nodeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	}
	clock := testingclock.NewFakeClock(noon)
	woken := make(chan string, 10)
	b := &Book{Sources: Sources{Kinds: []string{"karpenter"}}, Dynamic: served, Mapper: mapper, Clock: clock, Log: logr.Discard()}
	b.reset()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	b.begin = func(of translate.DeadlineKind, begun *kind) error { return b.run(ctx, of, begun) }
	b.wake = func(node string) { woken <- node }
	return b, clock, woken
}

func claim(name, node, at string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nodeName": node}}}
	object.SetGroupVersionKind(claims.GroupVersion().WithKind("NodeClaim"))
	object.SetName(name)
	object.SetDeletionTimestamp(&metav1.Time{Time: noon})
	object.SetAnnotations(map[string]string{"karpenter.sh/nodeclaim-termination-timestamp": at})
	return object
}

func ofKarpenter(name string) *corev1.Node {
	return builder.Node(name).Label("karpenter.sh/nodepool", "default").Obj()
}

func TestABookFollowsAKindOnceANodeNeedsIt(t *testing.T) {
	b, _, woken := newBook(t, nil, claim("c1", "n1", "2026-05-04T13:00:00Z"))
	b.nodeSeen(builder.Node("n2").Obj())
	if len(b.kinds) > 0 {
		t.Errorf("a node of nobody made it follow %v", b.kinds)
	}
	b.nodeSeen(ofKarpenter("n1"))
	b.await(t.Context(), ofClaim)
	if got := <-woken; got != "n1" {
		t.Errorf("woken for %s", got)
	}
	want := []translate.Learnt{{Source: "NodeClaim c1", At: noon.Add(time.Hour)}}
	if diff := cmp.Diff(want, b.says("n1")); diff != "" {
		t.Errorf("deadlines (-want +got):\n%s", diff)
	}
}

// Who may not read a kind learns nothing from it, and does not ask all the time.
func TestAKindThatCannotBeReadIsTriedAgainLater(t *testing.T) {
	b, clock, _ := newBook(t, apierrors.NewForbidden(claims.GroupResource(), "", nil))
	b.nodeSeen(ofKarpenter("n1"))
	b.await(t.Context(), ofClaim)
	first := b.follow(ofClaim)
	if b.follow(ofClaim) != first {
		t.Error("it is tried again at once")
	}
	clock.Step(retryKind)
	if b.follow(ofClaim) == first {
		t.Error("it is not tried again after the pause")
	}
}

func TestWhatABookForgets(t *testing.T) {
	one, other := types.NamespacedName{Namespace: "karpenter/", Name: "c1"}, types.NamespacedName{Namespace: "cluster-api/", Name: "c1"}
	at := func(hours int) translate.Learnt {
		return translate.Learnt{Source: "x", At: noon.Add(time.Duration(hours) * time.Hour)}
	}
	cases := map[string]struct {
		do    func(*Book)
		want  []translate.Learnt
		woken []string
	}{
		"nothing that is repeated":     {func(b *Book) { b.put(one, "n1", at(1)) }, []translate.Learnt{at(1)}, nil},
		"what is moved":                {func(b *Book) { b.put(one, "n1", at(2)) }, []translate.Learnt{at(2)}, []string{"n1", "n1"}},
		"what is taken back":           {func(b *Book) { b.put(one, "n1", translate.Learnt{}) }, nil, []string{"n1"}},
		"what is said of another node": {func(b *Book) { b.put(one, "n2", at(1)) }, nil, []string{"n1", "n2"}},
		"what was read, if that fails": {func(b *Book) { b.fail(ofClaim, &kind{}, apierrors.NewNotFound(claims.GroupResource(), "")) }, nil, []string{"n1"}},
		"nothing of an object like it": {func(b *Book) { b.put(other, "n1", translate.Learnt{}) }, []translate.Learnt{at(1)}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b, _, woken := newBook(t, nil)
			b.put(one, "n1", at(1))
			<-woken
			tc.do(b)
			close(woken)
			var got []string
			for node := range woken {
				got = append(got, node)
			}
			if diff := cmp.Diff(tc.woken, got); diff != "" {
				t.Errorf("woken for (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, b.says("n1")); diff != "" {
				t.Errorf("deadlines (-want +got):\n%s", diff)
			}
		})
	}
}
