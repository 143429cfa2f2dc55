package informers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestHandlersTellOfOneKind(t *testing.T) {
	var seen []string
	h := Handlers(func(p *corev1.Pod) { seen = append(seen, "put "+p.Name) }, func(p *corev1.Pod) { seen = append(seen, "remove "+p.Name) })
	a, b := builder.Pod("shop", "a").Obj(), builder.Pod("shop", "b").Obj()
	h.OnAdd(a, true)
	h.OnUpdate(a, b)
	h.OnDelete(b)
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: a})
	h.OnAdd(builder.Node("n").Obj(), false)
	if diff := cmp.Diff([]string{"put a", "put b", "remove b", "remove a"}, seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
