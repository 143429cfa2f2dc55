package vm

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// get returns an object from memory, nil if there is none. It must not be changed.
func (k *kinds) get(n need, key types.NamespacedName) (*unstructured.Unstructured, error) {
	found, err := k.ready(n)
	if err != nil {
		return nil, err
	}
	var cached *unstructured.Unstructured
	name := key.String()
	if key.Namespace == "" {
		name = key.Name
	}
	if item, ok, err := found.informer.GetIndexer().GetByKey(name); err == nil && ok {
		cached, _ = item.(*unstructured.Unstructured)
	}
	return found.newer(key, cached), nil
}

// settle forgets what we wrote once the informer has caught up.
func (k *kind) settle(seen *unstructured.Unstructured) {
	key := types.NamespacedName{Namespace: seen.GetNamespace(), Name: seen.GetName()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if written := k.written[key]; written != nil && (revision(seen) >= revision(written) || seen.GetUID() != written.GetUID()) {
		delete(k.written, key)
	}
}

// newer is what we wrote ourselves, while the informer lags behind.
func (k *kind) newer(key types.NamespacedName, cached *unstructured.Unstructured) *unstructured.Unstructured {
	k.mu.Lock()
	defer k.mu.Unlock()
	written := k.written[key]
	if written == nil {
		return cached
	}
	if cached == nil || revision(cached) >= revision(written) || cached.GetUID() != written.GetUID() {
		delete(k.written, key)
		return cached
	}
	return written
}

// revision is the resourceVersion, which has been comparable on every API server
// since Kubernetes 1.35 and in fact always was (KEP-5504).
func revision(u *unstructured.Unstructured) uint64 {
	v, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// list returns the objects of a namespace, or of all, from memory.
func (k *kinds) list(n need, namespace string) ([]*unstructured.Unstructured, error) {
	found, err := k.ready(n)
	if err != nil {
		return nil, err
	}
	var items []any
	if namespace == metav1.NamespaceAll {
		items = found.informer.GetIndexer().List()
	} else if items, err = found.informer.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace); err != nil {
		return nil, fmt.Errorf("list %s: %w", n.kind.Kind, err)
	}
	objects := make([]*unstructured.Unstructured, 0, len(items))
	for _, item := range items {
		if u, ok := item.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
		}
	}
	return objects, nil
}

// live reads an object from the API server, nil if there is none.
func (k *kinds) live(ctx context.Context, n need, key types.NamespacedName) (*unstructured.Unstructured, error) {
	found, err := k.ready(n)
	if err != nil {
		return nil, err
	}
	switch u, err := found.resource.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", n.kind.Kind, key, err)
	default:
		return &unstructured.Unstructured{Object: prune(u.Object, found.fields)}, nil
	}
}

// liveList lists the objects of a namespace, or of all, at the API server.
func (k *kinds) liveList(ctx context.Context, n need, namespace string) ([]*unstructured.Unstructured, error) {
	found, err := k.ready(n)
	if err != nil {
		return nil, err
	}
	list, err := found.resource.Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", n.kind.Kind, err)
	}
	objects := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

// patch writes a JSON patch, remembers the result until the informer has it, and
// returns all of it.
func (k *kinds) patch(ctx context.Context, n need, key types.NamespacedName, data []byte, manager, subresource string) (map[string]any, error) {
	found, err := k.ready(n)
	if err != nil {
		return nil, err
	}
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	var u *unstructured.Unstructured
	err = k.writes.Do(ctx, refused.Mark, "patch", objectOf(n, key), manager, nil, func() (err error) {
		u, err = found.resource.Namespace(key.Namespace).Patch(ctx, key.Name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("patch %s %s: %w", n.kind.Kind, key, err)
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	found.written[key] = &unstructured.Unstructured{Object: prune(u.Object, found.fields)}
	return u.Object, nil
}

// create creates an object.
func (k *kinds) create(ctx context.Context, n need, object *unstructured.Unstructured, manager string) error {
	found, err := k.ready(n)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if err := k.writes.Do(ctx, refused.Migration, "create", objectOf(n, key), manager, nil, func() error {
		_, err := found.resource.Namespace(key.Namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
		return err
	}); err != nil {
		return fmt.Errorf("create %s %s/%s: %w", n.kind.Kind, object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// objectOf is what is written, for a refusal.
func objectOf(n need, key types.NamespacedName) refused.Object {
	return refused.Object{Kind: n.kind.Kind, Namespace: key.Namespace, Name: key.Name}
}

// remove deletes this object.
func (k *kinds) remove(ctx context.Context, n need, key types.NamespacedName, uid types.UID) error {
	found, err := k.ready(n)
	if err != nil {
		return err
	}
	err = k.writes.Do(ctx, refused.Migration, "delete", objectOf(n, key), "", nil, func() error {
		return found.resource.Namespace(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", n.kind.Kind, key, err)
	}
	return nil
}
