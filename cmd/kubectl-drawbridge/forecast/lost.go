package forecast

import (
	"fmt"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// findLost finds the nodes that are lost. Nothing there confirms the end of a pod, so a drain
// waits for its deletion only.
func (w *world) findLost() {
	w.lost = make([]bool, len(w.drain))
	for i, name := range w.drain {
		node := w.nodes[name]
		if node == nil {
			continue
		}
		switch loss := translate.NodeLossOf(node); {
		case loss.At.IsZero():
		case w.in.Now.Before(loss.At):
			w.leaveOut(fmt.Sprintf("node %s may not come back: %s, and it is lost from %s on", name, text.Clean(loss.Why), loss.At.UTC().Format(time.RFC3339)))
		default:
			w.lost[i] = true
			w.leaveOut(fmt.Sprintf("the end of the pods of node %s, which nobody confirms: it is lost (%s), so they count as gone when they are deleted", name, text.Clean(loss.Why)))
		}
	}
}

// passedOver reports whether an interceptor gets no turn on a lost node, or loses the one that it
// has, as the controller of the requests decides it. The order is done there at once.
func passedOver(of *v1alpha1.Interceptor, active bool) bool {
	switch {
	case v1alpha1.IsUnhurried(of.Name):
		return false
	case of.Name == v1alpha1.OrderInterceptor:
		return true
	default:
		return of.OnNodeLost == v1alpha1.NodeLostInterrupt || of.OnNodeLost == v1alpha1.NodeLostSkip && !active
	}
}
