package vmcrds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inProgress is the descheduler's annotation, which virt-controller takes for its own.
const inProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"

// unhint removes the descheduler's annotation from the pods of machines without
// KubeVirt's mark, no matter who set it. Seen with virt-controller 1.9.0, which does so
// at every change of the pod.
func (p *Platform) unhint(ctx context.Context, machines map[string]*unstructured.Unstructured) {
	pods := &corev1.PodList{}
	if p.Client.List(ctx, pods, client.InNamespace(p.Namespace)) != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		machine := machines[pod.Annotations["kubevirt.io/domain"]]
		if _, hinted := pod.Annotations[inProgress]; !hinted || machine == nil || Text(machine, "status.evacuationNodeName") != "" {
			continue
		}
		data := []byte(`{"metadata":{"annotations":{"` + inProgress + `":null}}}`)
		_ = p.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, data)) // The next pass repairs it.
	}
}
