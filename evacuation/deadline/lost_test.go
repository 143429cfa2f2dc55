package deadline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func ready(name string, status corev1.ConditionStatus) *corev1.Node {
	node := builder.Node(name).Ready(status).Obj()
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon)
	return node
}

// Only what may change a decision wakes, so the heartbeats of a node cost nothing.
func TestWhichEventsOfANodeWake(t *testing.T) {
	taint := func(node *corev1.Node) *corev1.Node {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
		return node
	}
	up, down := ready("n1", corev1.ConditionTrue), ready("n1", corev1.ConditionUnknown)
	for name, tc := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"it is Ready as ever":          {up, up, false},
		"it is not Ready any more":     {up, down, true},
		"it is as it was":              {down, down, false},
		"a person says that it is off": {down, taint(down.DeepCopy()), true},
		"it is back":                   {down, up, true},
		"it is gone":                   {up, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, woken := newBook(t, nil)
			b.nodeSeen(tc.before)
			for len(woken) > 0 {
				<-woken
			}
			if tc.after == nil {
				b.nodeGone(tc.before)
			} else {
				b.nodeSeen(tc.after)
			}
			if got := len(woken) == 1; got != tc.want {
				t.Errorf("wakes: %t, want %t", got, tc.want)
			}
		})
	}
}

// cached is a cache that has nothing but reads.
type cached struct {
	cache.Cache
	client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.Reader.Get(ctx, key, object, options...)
}

func (c cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.Reader.List(ctx, list, options...)
}

func TestTheLossOfANode(t *testing.T) {
	unknown := translate.NodeLossOf(ready("n1", corev1.ConditionUnknown))
	if !unknown.At.Equal(noon.Add(time.Minute)) {
		t.Fatalf("lost at %s", unknown.At)
	}
	for name, tc := range map[string]struct {
		node         string
		cached, live []client.Object
		fails        bool
		want         translate.NodeLoss
	}{
		"the pod has none yet":                    {},
		"the cache has it":                        {node: "n1", cached: []client.Object{ready("n1", corev1.ConditionUnknown)}, fails: true, want: unknown},
		"only the API server has it":              {node: "n1", live: []client.Object{ready("n1", corev1.ConditionUnknown)}, want: unknown},
		"nobody has it":                           {node: "n1", want: translate.NoNode()},
		"without an answer nothing is certain":    {node: "n1", fails: true},
		"another one that is lost does not count": {node: "n1", cached: []client.Object{ready("n1", corev1.ConditionTrue), ready("n2", corev1.ConditionUnknown)}},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, _ := newBook(t, nil)
			b.Cache = cached{Reader: fake.NewClientBuilder().WithObjects(tc.cached...).Build()}
			live := fake.NewClientBuilder().WithObjects(tc.live...)
			if tc.fails {
				live.WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errors.New("no")
				}})
			}
			b.Live = live.Build()
			got, err := b.NodeLoss(t.Context(), tc.node)
			if wantErr := tc.fails && len(tc.cached) == 0; (err != nil) != wantErr {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("loss (-want +got):\n%s", diff)
			}
		})
	}
}
