package maintenance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func (w *world) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	store, name := w.store(obj)
	found, ok := store[client.ObjectKeyFromObject(obj)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: name}, obj.GetName())
	}
	var meta struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return err
	}
	if meta.Metadata.ResourceVersion != found.GetResourceVersion() || meta.Metadata.UID != "" && meta.Metadata.UID != found.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: name}, obj.GetName(), fmt.Errorf("it has changed"))
	}
	before, err := json.Marshal(found)
	if err != nil {
		return err
	}
	// What is patched by a merge patch, too, has the same meaning here.
	after, err := strategicpatch.StrategicMergePatch(before, data, obj)
	if err != nil {
		return err
	}
	now := found.DeepCopyObject().(client.Object)
	switch to := now.(type) {
	case *v1alpha1.NodeMaintenance:
		*to = v1alpha1.NodeMaintenance{}
	case *corev1.Node:
		*to = corev1.Node{}
	case *corev1.Pod:
		*to = corev1.Pod{}
	}
	if err := json.Unmarshal(after, now); err != nil {
		return err
	}
	w.writes["patch "+name]++
	if now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 {
		w.remove(now)
		return nil
	}
	w.put(now)
	return nil
}

func (w *world) Status() client.SubResourceWriter { return statusWriter{world: w} }

type statusWriter struct {
	client.SubResourceWriter
	world *world
}

func (s statusWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.world.Patch(ctx, obj, patch)
}

func (s statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	m := obj.(*v1alpha1.NodeMaintenance)
	if s.world.plans[client.ObjectKeyFromObject(m)].GetResourceVersion() != m.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.Resource("nodemaintenances"), m.Name, fmt.Errorf("it has changed"))
	}
	s.world.writes["status"]++
	s.world.put(m.DeepCopy())
	return nil
}

// Apply is what a requester says: the target and its own entry, or that it has none.
func (w *world) Apply(_ context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := &client.ApplyOptions{}
	o.ApplyOptions(opts)
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	said := &v1alpha1.EvictionRequest{}
	if err := json.Unmarshal(data, said); err != nil {
		return err
	}
	w.writes["apply requests"]++
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: said.Namespace, Name: said.Name, UID: "uid-of-" + types.UID(said.Name)}, Spec: v1alpha1.EvictionRequestSpec{Target: said.Spec.Target}}
	if found := w.requests[client.ObjectKeyFromObject(said)]; found != nil {
		er = found.DeepCopy()
	}
	er.Spec.Requesters = slices.DeleteFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == o.FieldManager })
	er.Spec.Requesters = append(er.Spec.Requesters, said.Spec.Requesters...)
	w.putRequest(er)
	answer, err := json.Marshal(er)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, config)
}

// Delete removes a request.
func (w *world) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	key := client.ObjectKeyFromObject(obj)
	before := w.requests[key]
	if before == nil {
		return apierrors.NewNotFound(v1alpha1.Resource("evictionrequests"), key.Name)
	}
	w.writes["delete requests"]++
	delete(w.requests, key)
	part := w.parts["requests"]
	part.Events.Delete(context.Background(), event.DeleteEvent{Object: before}, nil)
	return nil
}
