package informers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
)

// EachPod calls visit for every pod that a reader has, which is shared and must not be
// changed. A cache of NewCache makes no list of them: that of the 150,000 pods of a large
// cluster takes 185 MiB. The error is the reader's.
func EachPod(ctx context.Context, reader client.Reader, visit func(*corev1.Pod)) error {
	if c, ok := reader.(*cheaper); ok {
		return c.eachPod(ctx, visit)
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		visit(&pods.Items[i])
	}
	return nil
}

func (c *cheaper) eachPod(ctx context.Context, visit func(*corev1.Pod)) error {
	if _, err := c.GetInformer(ctx, &corev1.Pod{}); err != nil {
		return fmt.Errorf("get the informer of pods: %w", err)
	}
	for _, obj := range c.pods.Load().informer.GetIndexer().List() {
		if pod := packed.Of(obj); pod != nil {
			visit(pod)
		}
	}
	return nil
}

// getPod is what the cache's own reader does.
func (s *store) getPod(key client.ObjectKey, pod *corev1.Pod, options []client.GetOption) error {
	obj, exists, err := s.informer.GetIndexer().GetByKey(storeKey(key))
	if err != nil {
		return fmt.Errorf("look up pod %s: %w", key, err)
	}
	if !exists {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "Pod"}, key.Name) // The kind, as the cache has it.
	}
	o := (&client.GetOptions{}).ApplyOptions(options)
	return give(obj, pod, o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy)
}

// give copies an object of the informer into a pod; what it points to only if it is not to
// be shared.
func give(obj any, pod *corev1.Pod, share bool) error {
	if !packed.Into(obj, pod) {
		return fmt.Errorf("the informer of pods holds a %T", obj)
	}
	if !share {
		*pod = *pod.DeepCopy()
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	}
	return nil
}

// listPods is what the cache's own reader does.
func (s *store) listPods(list *corev1.PodList, options []client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if o.Continue != "" {
		return errPages
	}
	objs, err := s.selected(o)
	if err != nil {
		return err
	}
	share := o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	list.Items = nil
	if o.LabelSelector == nil {
		list.Items = make([]corev1.Pod, 0, len(objs))
	}
	var pod corev1.Pod
	for _, obj := range objs {
		if o.Limit > 0 && int64(len(list.Items)) == o.Limit {
			break
		}
		if err := give(obj, &pod, true); err != nil {
			return err
		}
		if o.Namespace != "" && pod.Namespace != o.Namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if err := give(&pod, &pod, share); err != nil {
			return err
		}
		list.Items = append(list.Items, pod)
	}
	list.Continue = "continue-not-supported" // As the cache has it.
	return nil
}

var (
	// errPages: there is always everything on the first page.
	errPages = errors.New("the cache does not continue lists")
	errExact = errors.New("the cache selects only fields that equal a value")
)

// selected is what an index says about the options, which may be more than is wanted: those
// of other namespaces and labels.
func (s *store) selected(o *client.ListOptions) ([]any, error) {
	indexer := s.informer.GetIndexer()
	var wanted fields.Requirements
	if o.FieldSelector != nil {
		wanted = o.FieldSelector.Requirements()
	}
	switch {
	case len(wanted) > 1 || len(wanted) == 1 && wanted[0].Operator != selection.Equals && wanted[0].Operator != selection.DoubleEquals:
		return nil, errExact
	case len(wanted) == 1:
		objs, err := indexer.ByIndex(indexName(wanted[0].Field), wanted[0].Value)
		if err != nil {
			return nil, fmt.Errorf("select pods by %s: %w", wanted[0].Field, err)
		}
		return objs, nil
	case o.Namespace != "":
		objs, err := indexer.ByIndex(toolscache.NamespaceIndex, o.Namespace)
		if err != nil {
			return nil, fmt.Errorf("select the pods of namespace %s: %w", o.Namespace, err)
		}
		return objs, nil
	default:
		return indexer.List(), nil
	}
}

// indexPods adds an index. The cache's own would have each value twice, for its namespace
// and for all; a value has so few pods that ours is filtered.
func (s *store) indexPods(field string, extract client.IndexerFunc) error {
	scratches := sync.Pool{New: func() any { return &packed.Scratch{} }} // It is called twice for each event.
	err := s.informer.AddIndexers(toolscache.Indexers{indexName(field): func(obj any) ([]string, error) {
		scratch := scratches.Get().(*packed.Scratch) //nolint:forcetypeassert // Only such are put there.
		defer scratches.Put(scratch)
		pod := scratch.Of(obj)
		if pod == nil {
			return nil, fmt.Errorf("the informer of pods holds a %T", obj)
		}
		return extract(pod), nil
	}})
	if err != nil {
		return fmt.Errorf("index pods by %s: %w", field, err)
	}
	return nil
}

func indexName(field string) string { return "field:" + field }
