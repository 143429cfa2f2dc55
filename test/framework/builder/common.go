package builder

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// built is an object of a kind of this package.
type built[O any] interface {
	GetObjectMeta() metav1.Object
	DeepCopy() O
}

// common is what the wrappers of all kinds can do. It knows the wrapper that embeds it,
// so that its setters return that.
type common[W any, O built[O]] struct {
	self W
	obj  O
	meta *metav1.ObjectMeta
	wrap func(O) W
}

// share gives a new wrapper what all have in common; wrap makes one of another object.
func share[W interface{ set(common[W, O]) }, O built[O]](self W, obj O, wrap func(O) W) W {
	self.set(common[W, O]{self, obj, obj.GetObjectMeta().(*metav1.ObjectMeta), wrap})
	return self
}

func (c *common[W, O]) set(to common[W, O]) { *c = to }

// Obj returns the object itself.
func (c common[W, O]) Obj() O { return c.obj }

// Clone returns an independent copy.
func (c common[W, O]) Clone() W { return c.wrap(c.obj.DeepCopy()) }

// UID sets metadata.uid, which in a request is its own and not its pod's.
func (c common[W, O]) UID(uid types.UID) W {
	c.meta.UID = uid
	return c.self
}

// Generation sets metadata.generation.
func (c common[W, O]) Generation(generation int64) W {
	c.meta.Generation = generation
	return c.self
}

// ResourceVersion sets metadata.resourceVersion.
func (c common[W, O]) ResourceVersion(version string) W {
	c.meta.ResourceVersion = version
	return c.self
}

// Created sets metadata.creationTimestamp.
func (c common[W, O]) Created(at time.Time) W {
	c.meta.CreationTimestamp = metav1.NewTime(at)
	return c.self
}

// Label sets a label.
func (c common[W, O]) Label(key, value string) W {
	setKey(&c.meta.Labels, key, value)
	return c.self
}

// Annotation sets an annotation.
func (c common[W, O]) Annotation(key, value string) W {
	setKey(&c.meta.Annotations, key, value)
	return c.self
}

func setKey(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}
