//go:build unix

package chaos

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects are those of a kind that there are, as far as is known. The zero value has none. The
// observer's lock guards it.
type objects[T client.Object] struct {
	now map[types.UID]T
	// told are told of every state.
	told []chan T
}

// take notes a state. It reports whether that is a new one: a list after a gap has others, too.
func (o *objects[T]) take(object T, gone bool) bool {
	uid := object.GetUID()
	if known, ok := o.now[uid]; ok && !gone && known.GetResourceVersion() == object.GetResourceVersion() {
		return false
	}
	if o.now == nil {
		o.now = map[types.UID]T{}
	}
	if o.now[uid] = object; gone {
		delete(o.now, uid)
	}
	for _, f := range o.told {
		select {
		case f <- object:
		default: // Nobody is that slow.
		}
	}
	return true
}

// nowOf are the objects of a kind that there are.
func nowOf[T client.Object](o *observer, of *objects[T]) map[types.UID]T {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := map[types.UID]T{} // Never nil: some take what they do not want out of it.
	maps.Copy(now, of.now)
	return now
}

// eventsOf is a channel of every state of a kind from now on.
func eventsOf[T client.Object](o *observer, of *objects[T]) <-chan T {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := make(chan T, 10000)
	of.told = append(of.told, f)
	return f
}

// listedOf takes in a list; what is not in it any more has ended unseen.
func listedOf[V any, T interface {
	*V
	client.Object
}](o *observer, items []V, of *objects[T], gap bool) {
	var here []types.UID
	for i := range items {
		here = append(here, T(&items[i]).GetUID())
		o.take(T(&items[i]), false, gap)
	}
	for uid, object := range nowOf(o, of) {
		if !slices.Contains(here, uid) {
			o.take(object, true, true)
		}
	}
}
