package vmcrds

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Set sets a field by its path.
func Set(object *unstructured.Unstructured, path string, value any) {
	if err := unstructured.SetNestedField(object.Object, value, strings.Split(path, ".")...); err != nil {
		panic(err)
	}
}

// Text reads a string by its path; empty if it is not there.
func Text(object *unstructured.Unstructured, path string) string {
	value, _, _ := unstructured.NestedString(object.Object, strings.Split(path, ".")...) // As if it was not there.
	return value
}

// EvacuationAnnotation is on migrations of KubeVirt's evacuation controller.
const EvacuationAnnotation = "kubevirt.io/evacuationMigration"

// Platform plays KubeVirt in one namespace: virt-controller's evacuation controller
// and the virt-handlers. A migration goes on by one phase with every look, if
// Proceed says so, and fails if Fail does.
type Platform struct {
	// Client writes as HandlerAccount: see API.
	Client    client.Client
	Namespace string
	// Target is the node that machines migrate to.
	Target string
	// Evacuates: there is an evacuation controller, which creates migrations of what
	// is marked.
	Evacuates bool
	// Backoff is how long its migrations wait, Pending, after the first failure; twice as
	// long after each further one. KubeVirt waits 20 s.
	Backoff time.Duration
	// Proceed and Fail decide about a machine's migration; nil is yes and no.
	Proceed, Fail func(machine string) bool

	mu sync.Mutex
	// PeakCluster and PeakNode are the most unfinished migrations there were, and the
	// most that left one node.
	PeakCluster, PeakNode int
	created, looks        int
	// failures and lastFailure are those of each machine since its last success.
	failures    map[string]int
	lastFailure map[string]time.Time
}

// Peaks are the most unfinished migrations there were, in all and of one node.
func (p *Platform) Peaks() (cluster, node int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.PeakCluster, p.PeakNode
}

// Looks is how many passes it has made.
func (p *Platform) Looks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looks
}

// Run plays until the context ends. Conflicts are made up for by the next look.
func (p *Platform) Run(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = p.look(ctx) // The next pass repairs it.
		}
	}
}

func (p *Platform) look(ctx context.Context) error {
	machines := &unstructured.UnstructuredList{}
	machines.SetGroupVersionKind(Machine)
	if err := p.Client.List(ctx, machines, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	byName := map[string]*unstructured.Unstructured{}
	for i := range machines.Items {
		byName[machines.Items[i].GetName()] = &machines.Items[i]
	}
	migrations := &unstructured.UnstructuredList{}
	migrations.SetGroupVersionKind(Migration)
	if err := p.Client.List(ctx, migrations, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	unfinished, perNode := map[string]bool{}, map[string]int{}
	for i := range migrations.Items {
		m := &migrations.Items[i]
		if phase := Text(m, "status.phase"); phase != "Succeeded" && phase != "Failed" {
			name := Text(m, "spec.vmiName")
			unfinished[name] = true
			if machine := byName[name]; machine != nil {
				perNode[Text(machine, "status.nodeName")]++
			}
		}
	}
	p.count(len(unfinished), perNode)
	if p.Evacuates {
		p.evacuate(ctx, machines.Items, unfinished)
	}
	for i := range migrations.Items {
		p.proceed(ctx, &migrations.Items[i], byName)
	}
	p.unhint(ctx, byName)
	p.mu.Lock()
	p.looks++
	p.mu.Unlock()
	return nil
}

func (p *Platform) count(cluster int, perNode map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.PeakCluster = max(p.PeakCluster, cluster)
	for _, n := range perNode {
		p.PeakNode = max(p.PeakNode, n)
	}
}

// evacuate is the evacuation controller (kubevirt.md, section 9).
func (p *Platform) evacuate(ctx context.Context, machines []unstructured.Unstructured, unfinished map[string]bool) {
	for i := range machines {
		m := &machines[i]
		node := Text(m, "status.evacuationNodeName")
		if node == "" || node != Text(m, "status.nodeName") || unfinished[m.GetName()] || Text(m, "spec.evictionStrategy") == "External" {
			continue
		}
		p.mu.Lock()
		p.created++
		name := fmt.Sprintf("kubevirt-evacuation-%d", p.created)
		p.mu.Unlock()
		migration := New(Migration, p.Namespace, name, map[string]any{"spec.vmiName": m.GetName()})
		migration.SetAnnotations(map[string]string{EvacuationAnnotation: node})
		_ = p.Client.Create(ctx, migration) // The next pass repairs it.
	}
}

// proceed takes a migration one phase further.
func (p *Platform) proceed(ctx context.Context, migration *unstructured.Unstructured, machines map[string]*unstructured.Unstructured) {
	name := Text(migration, "spec.vmiName")
	machine := machines[name]
	if machine == nil || migration.GetDeletionTimestamp() != nil || (p.Proceed != nil && !p.Proceed(name)) {
		return
	}
	if p.backsOff(name, migration) {
		return
	}
	source := Text(machine, "status.nodeName")
	state := map[string]any{"sourceNode": source, "targetNode": p.Target, "startTimestamp": "2026-01-01T00:00:00Z"}
	switch Text(migration, "status.phase") {
	case "", "Pending":
		Set(machine, "status.migrationState", state)
		if p.Client.Update(ctx, machine) == nil {
			p.phase(ctx, migration, "Running")
		}
	case "Running":
		state["endTimestamp"] = "2026-01-01T00:01:00Z"
		if p.Fail != nil && p.Fail(name) {
			state["failed"] = true
			Set(machine, "status.migrationState", state)
			if p.Client.Update(ctx, machine) == nil {
				p.phase(ctx, migration, "Failed")
				p.ended(name, false)
			}
			return
		}
		state["completed"] = true
		Set(machine, "status.migrationState", state)
		Set(machine, "status.nodeName", p.Target)
		// The target's virt-handler removes the mark.
		unstructured.RemoveNestedField(machine.Object, "status", "evacuationNodeName")
		unstructured.RemoveNestedField(machine.Object, "metadata", "annotations", "kubevirt.io/eviction-source")
		if p.Client.Update(ctx, machine) == nil {
			p.phase(ctx, migration, "Succeeded")
			p.ended(name, true)
			p.end(ctx, name, source)
		}
	}
}

// backsOff reports whether a migration that has not begun must wait: the migration
// controller holds those for an evacuation back after failures, and the evacuation
// controller has made the next one already.
func (p *Platform) backsOff(machine string, migration *unstructured.Unstructured) bool {
	if _, evacuation := migration.GetAnnotations()[EvacuationAnnotation]; !evacuation || p.Backoff == 0 {
		return false
	}
	if phase := Text(migration, "status.phase"); phase != "" && phase != "Pending" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.failures[machine]
	return n > 0 && time.Since(p.lastFailure[machine]) < p.Backoff<<(n-1)
}

// ended counts the end of a migration.
func (p *Platform) ended(machine string, well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures == nil {
		p.failures, p.lastFailure = map[string]int{}, map[string]time.Time{}
	}
	if well {
		delete(p.failures, machine)
		return
	}
	p.failures[machine]++
	p.lastFailure[machine] = time.Now()
}

func (p *Platform) phase(ctx context.Context, migration *unstructured.Unstructured, phase string) {
	Set(migration, "status.phase", phase)
	_ = p.Client.Status().Update(ctx, migration) // The next pass repairs it.
}

// end lets the machine's pod on the node it left run out.
func (p *Platform) end(ctx context.Context, machine, node string) {
	pods := &corev1.PodList{}
	if p.Client.List(ctx, pods, client.InNamespace(p.Namespace)) != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Annotations["kubevirt.io/domain"] != machine || pod.Spec.NodeName != node {
			continue
		}
		data := []byte(`{"status":{"phase":"Succeeded"}}`)
		if err := p.Client.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, data)); err != nil && !apierrors.IsNotFound(err) {
			return
		}
	}
}
