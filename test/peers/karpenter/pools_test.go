//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// Karpenter's kinds. Its Go module would bring a cloud provider's worth of others.
var (
	nodePool  = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
	nodeClaim = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}
	nodeClass = schema.GroupVersionKind{Group: "karpenter.kwok.sh", Version: "v1alpha1", Kind: "KWOKNodeClass"}
)

const (
	// className is the class of all nodes.
	className = "default"
	// poolLabel is on the nodes of a pool; its value is the pool's name.
	poolLabel = "karpenter.sh/nodepool"
	// terminationTimestamp is on a NodeClaim, when its node has to be gone.
	terminationTimestamp = "karpenter.sh/nodeclaim-termination-timestamp"
)

func newObject(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }

// pool is a NodePool with the nodes of one test, and the namespace of their pods.
type pool struct {
	// name of the NodePool, and of the namespace.
	name   string
	object *unstructured.Unstructured
}

// newPool makes one whose nodes have a terminationGracePeriod, unless it is empty. Karpenter
// leaves its nodes alone until the test says otherwise.
func newPool(t *testing.T, terminationGracePeriod string) *pool {
	t.Helper()
	namespace := kube.Namespace(t)
	is := func(key, value string) any {
		return map[string]any{"key": key, "operator": "In", "values": []any{value}}
	}
	template := map[string]any{
		"requirements": []any{
			is(corev1.LabelArchStable, "amd64"), is(corev1.LabelOSStable, "linux"), is("karpenter.sh/capacity-type", "on-demand"),
		},
		"nodeClassRef": map[string]any{"group": nodeClass.Group, "kind": nodeClass.Kind, "name": className},
		"expireAfter":  "Never",
	}
	if terminationGracePeriod != "" {
		template["terminationGracePeriod"] = terminationGracePeriod
	}
	p := &pool{name: namespace, object: newObject(nodePool, namespace, map[string]any{
		"template":   map[string]any{"spec": template},
		"disruption": map[string]any{"consolidateAfter": "Never", "budgets": []any{map[string]any{"nodes": "100%"}}},
	})}
	cluster.Create(t, admin, p.object)
	t.Cleanup(func() {
		// The test's own context has ended by now. Its nodes go with the pool.
		if err := admin.Delete(context.Background(), p.object); err != nil {
			t.Error(err)
		}
	})
	return p
}

// change changes the spec of the NodePool.
func (p *pool) change(t *testing.T, change func(spec map[string]any)) {
	t.Helper()
	eventually(t, "NodePool "+p.name+" to be changed", func(ctx context.Context) error {
		if err := admin.Get(ctx, keyOf(p.object), p.object); err != nil {
			return err
		}
		change(p.object.Object["spec"].(map[string]any))
		return admin.Update(ctx, p.object)
	})
}

// here lets a pod run on the nodes of the pool only.
func (p *pool) here(more ...func(*builder.PodWrapper)) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) {
		w.NodeSelector(poolLabel, p.name)
		for _, change := range more {
			change(w)
		}
	}
}

// pod creates a pod on a node of the pool, and waits until it is Ready.
func (p *pool) pod(t *testing.T, name string, more ...func(*builder.PodWrapper)) *corev1.Pod {
	t.Helper()
	w := builder.Pod(p.name, name)
	p.here(more...)(w)
	cluster.Create(t, admin, w.Obj())
	return p.ready(t, name)[0]
}

// ready waits until a pod whose name begins so is Ready, and all its kind with it.
func (p *pool) ready(t *testing.T, prefix string) []*corev1.Pod {
	t.Helper()
	var found []*corev1.Pod
	eventually(t, "pod "+prefix+" of "+p.name+" to be Ready", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(p.name)); err != nil {
			return err
		}
		found = nil
		for i := range list.Items {
			pod := &list.Items[i]
			switch {
			case !strings.HasPrefix(pod.Name, prefix):
			case !cluster.IsReady(pod):
				return fmt.Errorf("%s is %s on node %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
			default:
				found = append(found, pod)
			}
		}
		if len(found) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	return found
}

// claimOf returns the NodeClaim of the node that a pod runs on.
func claimOf(t *testing.T, pod *corev1.Pod) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	eventually(t, "the NodeClaim of "+pod.Spec.NodeName+" to be initialized", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(nodeClaim)
		if err := admin.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if name, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "nodeName"); name == pod.Spec.NodeName {
				found = &list.Items[i]
				if !peer.ConditionTrue(found, "Initialized") {
					return fmt.Errorf("status %v", found.Object["status"])
				}
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
	return found
}

// exists says whether this very object is still there.
func exists(ctx context.Context, object client.Object) (bool, error) {
	now := object.DeepCopyObject().(client.Object)
	switch err := admin.Get(ctx, keyOf(object), now); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return now.GetUID() == object.GetUID(), nil
}

// terminationTime waits until a NodeClaim says when its node has to be gone.
func terminationTime(t *testing.T, claim *unstructured.Unstructured) time.Time {
	t.Helper()
	now := claim.DeepCopy()
	eventually(t, "NodeClaim "+claim.GetName()+" to have a time", func(ctx context.Context) error {
		if err := admin.Get(ctx, keyOf(claim), now); err != nil {
			return err
		}
		if now.GetAnnotations()[terminationTimestamp] == "" {
			return fmt.Errorf("annotations %v", now.GetAnnotations())
		}
		return nil
	})
	return must(time.Parse(time.RFC3339, now.GetAnnotations()[terminationTimestamp]))(t)
}
