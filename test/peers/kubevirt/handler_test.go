//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// Labels of a machine that virt-handler goes by.
const (
	nodeNameLabel   = "kubevirt.io/nodeName"
	targetNodeLabel = "kubevirt.io/migrationTargetNodeName"
	eviction        = "kubevirt.io/eviction-source"
)

// heartbeatInterval is how often virt-handler writes to its node. The real one takes 1
// to 2.2 minutes.
const heartbeatInterval = 5 * time.Second

// guest is what happens to a machine, where a real one would have its own will.
type guest struct {
	// migratable is the status of the condition LiveMigratable; "-" for no condition,
	// True if empty.
	migratable string
	// held: its migration begins and does not end.
	held bool
	// fails: its migrations fail.
	fails bool
}

// handler plays virt-handler on all nodes, and what kubelet says of launchers that
// end. It writes what virt-handler writes, in its order: the target's address, the
// start, the end with the new node and without the mark, and then that it is complete.
type handler struct {
	// own reads with virt-handler's account, kubelet is that of the nodes.
	own, kubelet client.Client

	mu sync.Mutex
	// nodes are the clients of the virt-handlers of nodes.
	nodes  map[string]client.Client
	guests map[string]func(name string) guest
	// peakCluster and peakNode are the most migrations that were under way, in all and
	// from one node, by namespace.
	peakCluster, peakNode map[string]int
}

// play says what happens to the machines of a namespace from now on.
func (h *handler) play(namespace string, what func(name string) guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guests == nil {
		h.guests, h.peakCluster, h.peakNode = map[string]func(string) guest{}, map[string]int{}, map[string]int{}
	}
	h.guests[namespace] = what
}

// peaks are the most migrations of a namespace that were under way at a time.
func (h *handler) peaks(namespace string) (inCluster, ofNode int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peakCluster[namespace], h.peakNode[namespace]
}

func (h *handler) guest(machine *unstructured.Unstructured) guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	if what := h.guests[machine.GetNamespace()]; what != nil {
		return what(machine.GetName())
	}
	return guest{}
}

// run plays until the context ends. The next look makes up for what failed.
func (h *handler) run(ctx context.Context) {
	ticker, heart := time.NewTicker(200*time.Millisecond), time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	defer heart.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heart.C:
			h.beat(ctx)
		case <-ticker.C:
			h.look(ctx)
		}
	}
}

// beat says that the nodes live. KubeVirt's evacuation controller does not follow pods:
// when a migration has failed, it waits for the target to end, and sees that it has when
// the node or the machine changes next.
func (h *handler) beat(ctx context.Context) {
	nodes := &corev1.NodeList{}
	if h.kubelet.List(ctx, nodes, client.HasLabels{testLabel}) != nil {
		return
	}
	for i := range nodes.Items {
		data := fmt.Appendf(nil, `{"metadata":{"annotations":{"kubevirt.io/heartbeat":%q}}}`, time.Now().UTC().Format(time.RFC3339))
		_ = h.kubelet.Patch(ctx, &nodes.Items[i], client.RawPatch(types.MergePatchType, data)) // The next beat makes up for it.
	}
}

func (h *handler) look(ctx context.Context) {
	machines := &unstructured.UnstructuredList{}
	machines.SetGroupVersionKind(vmcrds.Machine)
	if h.own.List(ctx, machines) != nil {
		return
	}
	h.count(machines.Items)
	for i := range machines.Items {
		machine := &machines.Items[i]
		node := vmcrds.Text(machine, "status.nodeName")
		if h.step(machine) {
			_ = h.update(ctx, node, machine) // The next look makes up for it.
			continue
		}
		h.endPods(ctx, machine)
	}
}

// update writes as the virt-handler of a node: KubeVirt 1.9 lets it write nothing of
// machines that are neither there nor on their way, and knows the node by the token.
func (h *handler) update(ctx context.Context, node string, machine *unstructured.Unstructured) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes == nil {
		h.nodes = map[string]client.Client{}
	}
	if h.nodes[node] == nil {
		config := kube.Config()
		config.Impersonate = rest.ImpersonationConfig{
			UserName: vmcrds.HandlerAccount,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
		}
		made, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			return err
		}
		h.nodes[node] = made
	}
	return h.nodes[node].Update(ctx, machine)
}

// count notes how many migrations are under way: those that KubeVirt has handed over.
func (h *handler) count(machines []unstructured.Unstructured) {
	inCluster, ofNode := map[string]int{}, map[string]int{}
	for i := range machines {
		state := migrationState(&machines[i])
		if state["migrationUid"] == nil || state["completed"] == true || state["endTimestamp"] != nil {
			continue
		}
		namespace := machines[i].GetNamespace()
		inCluster[namespace]++
		source, _ := state["sourceNode"].(string) // Nothing counts as a node of its own.
		ofNode[namespace+"/"+source]++
		h.mu.Lock()
		if h.guests != nil {
			h.peakCluster[namespace] = max(h.peakCluster[namespace], inCluster[namespace])
			h.peakNode[namespace] = max(h.peakNode[namespace], ofNode[namespace+"/"+source])
		}
		h.mu.Unlock()
	}
}

// step takes a machine one step further, and reports whether there was one.
func (h *handler) step(machine *unstructured.Unstructured) bool {
	phase := vmcrds.Text(machine, "status.phase")
	guest := h.guest(machine)
	switch {
	case phase == "Succeeded" || phase == "Failed":
		return false
	case machine.GetDeletionTimestamp() != nil:
		if phase != "Running" && phase != "Scheduled" {
			return false // It is virt-controller's.
		}
		vmcrds.Set(machine, "status.phase", "Succeeded")
		return true
	case phase == "Scheduled":
		vmcrds.Set(machine, "status.phase", "Running")
		vmcrds.Set(machine, "status.selinuxContext", "none")
		setMigratable(machine, guest.migratable)
		return true
	case phase == "Running":
		return migrate(machine, guest)
	}
	return false
}

// setMigratable sets the condition by which KubeVirt knows whether a machine can migrate.
func setMigratable(machine *unstructured.Unstructured, status string) {
	conditions, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions") // None if they cannot be read.
	kept := []any{}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] != "LiveMigratable" {
			kept = append(kept, c)
		}
	}
	if status == "" {
		status = "True"
	}
	if status != "-" {
		kept = append(kept, map[string]any{"type": "LiveMigratable", "status": status, "lastProbeTime": nil, "lastTransitionTime": nil})
	}
	vmcrds.Set(machine, "status.conditions", kept)
}

func migrationState(machine *unstructured.Unstructured) map[string]any {
	state, _, _ := unstructured.NestedMap(machine.Object, "status", "migrationState") // None if it cannot be read.
	return state
}

// migrate takes the migration that KubeVirt has handed over one step further.
func migrate(machine *unstructured.Unstructured, guest guest) bool {
	state := migrationState(machine)
	target, _ := state["targetNode"].(string) // Without one it is not handed over.
	if target == "" || state["completed"] == true {
		return finish(machine, state)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	switch {
	case state["targetNodeAddress"] == nil:
		state["targetNodeAddress"] = "127.0.0.1"
		state["targetDirectMigrationNodePorts"] = map[string]any{"49152": int64(49152)}
	case state["startTimestamp"] == nil:
		state["startTimestamp"] = now
	case state["endTimestamp"] != nil:
		state["completed"] = true
	case state["abortRequested"] == true:
		state["abortStatus"], state["failed"], state["completed"], state["endTimestamp"] = "Succeeded", true, true, now
	case guest.held:
		return false
	case guest.fails:
		state["failed"], state["completed"], state["endTimestamp"], state["failureReason"] = true, true, now, "as the test has it"
	default:
		state["targetNodeDomainDetected"], state["targetNodeDomainReadyTimestamp"], state["endTimestamp"] = true, now, now
		vmcrds.Set(machine, "status.nodeName", target)
		unstructured.RemoveNestedField(machine.Object, "status", "evacuationNodeName")
		unstructured.RemoveNestedField(machine.Object, "metadata", "annotations", eviction)
		setLabel(machine, nodeNameLabel, target)
	}
	vmcrds.Set(machine, "status.migrationState", state)
	return true
}

// finish takes away the label by which the target's virt-handler saw the machine.
func finish(machine *unstructured.Unstructured, state map[string]any) bool {
	if state["completed"] != true || machine.GetLabels()[targetNodeLabel] == "" {
		return false
	}
	setLabel(machine, targetNodeLabel, "")
	return true
}

func setLabel(machine *unstructured.Unstructured, key, value string) {
	labels := machine.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if labels[key] = value; value == "" {
		delete(labels, key)
	}
	machine.SetLabels(labels)
}

// endPods lets the launchers run out in which there is no guest any more: the source of
// a migration that succeeded, the target of one that failed, and all of a machine that
// has ended.
func (h *handler) endPods(ctx context.Context, machine *unstructured.Unstructured) {
	state := migrationState(machine)
	phase := vmcrds.Text(machine, "status.phase")
	ended := phase == "Succeeded" || phase == "Failed"
	if state["completed"] != true && !ended {
		return
	}
	list := &corev1.PodList{}
	if h.kubelet.List(ctx, list, client.InNamespace(machine.GetNamespace()), client.MatchingLabels{"kubevirt.io/created-by": string(machine.GetUID())}) != nil {
		return
	}
	for i := range list.Items {
		pod := &list.Items[i]
		empty := ended || pod.Name == state["sourcePod"] && state["failed"] != true || pod.Name == state["targetPod"] && state["failed"] == true
		if !empty || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		data := []byte(`{"status":{"phase":"Succeeded"}}`)
		_ = h.kubelet.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, data)) // The next look makes up for it.
	}
}
