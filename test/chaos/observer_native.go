//go:build unix

package chaos

import (
	"maps"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listedNative takes in a list of lifecycle.k8s.io; what is not in it any more has ended unseen.
func (o *observer) listedNative(list client.ObjectList) {
	var here []types.UID
	switch list := list.(type) {
	case *lifecyclev1alpha1.EvictionList:
		for i := range list.Items {
			here = append(here, list.Items[i].UID)
			o.take(&list.Items[i], false, false)
		}
		for uid, e := range o.evictionsNow() {
			if !slices.Contains(here, uid) {
				o.take(e, true, true)
			}
		}
	case *lifecyclev1alpha1.EvictionRequestList:
		for i := range list.Items {
			here = append(here, list.Items[i].UID)
			o.take(&list.Items[i], false, false)
		}
		for uid, wish := range o.wishesNow() {
			if !slices.Contains(here, uid) {
				o.take(wish, true, true)
			}
		}
	}
}

// takeNative notes a state of an object of lifecycle.k8s.io. The lock is held.
func (o *observer) takeNative(now time.Time, object client.Object, gone bool) {
	switch object := object.(type) {
	case *lifecyclev1alpha1.Eviction:
		if known := o.evictionNow[object.UID]; known != nil && !gone && known.ResourceVersion == object.ResourceVersion {
			return
		}
		o.evictions = append(o.evictions, EvictionSeen{At: now, Gone: gone, Eviction: object})
		if o.evictionNow[object.UID] = object; gone {
			delete(o.evictionNow, object.UID)
		}
		for _, f := range o.attend {
			select {
			case f <- object:
			default: // Nobody is that slow.
			}
		}
	case *lifecyclev1alpha1.EvictionRequest:
		if known := o.wishNow[object.UID]; known != nil && !gone && known.ResourceVersion == object.ResourceVersion {
			return
		}
		o.wishes = append(o.wishes, WishSeen{At: now, Gone: gone, Wish: object})
		if o.wishNow[object.UID] = object; gone {
			delete(o.wishNow, object.UID)
		}
	}
}

// evictionsNow are the Evictions there are, as far as is known.
func (o *observer) evictionsNow() map[types.UID]*lifecyclev1alpha1.Eviction {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.evictionNow)
}

func (o *observer) wishesNow() map[types.UID]*lifecyclev1alpha1.EvictionRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.wishNow)
}

// evictionEvents is a channel of every state of Evictions from now on.
func (o *observer) evictionEvents() <-chan *lifecyclev1alpha1.Eviction {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := make(chan *lifecyclev1alpha1.Eviction, 10000)
	o.attend = append(o.attend, f)
	return f
}
