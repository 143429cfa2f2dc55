//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// readCalls takes the evictions and what the managers write from the API server's log.
func (r *run) readCalls(ctx context.Context, mark cluster.Mark) error {
	requests, err := r.world.Cluster.RequestLog().Since(ctx, mark)
	if err != nil {
		r.world.tellf("the log of the API server: %v", err)
	}
	manager := r.world.managerUser()
	for _, request := range requests {
		if request.User == manager && request.Writes() && request.Name != "" && !request.DryRun {
			r.readWrite(&request)
		}
		if request.User == manager && request.Resource == "pods" && request.Subresource == "" && strings.HasPrefix(request.Verb, "delete") && !request.DryRun {
			r.history.Deletions = append(r.history.Deletions, Deletion{At: request.Time, Name: request.Name, UID: deletedUID(request.Body), Code: request.Code})
		}
		if request.Resource == "pods" && request.Subresource == "eviction" && request.Namespace == r.namespace && !request.DryRun {
			r.history.Calls = append(r.history.Calls, Call{At: request.Time, User: request.User, Name: request.Name, UID: preconditionOf(request.Body), Code: request.Code})
		}
	}
	return nil
}

// decisionAnnotation is what the API server notes in its log when it has looked for permissions.
const decisionAnnotation = "authorization.k8s.io/decision"

// readWrite takes a write of the managers. The leader renews his lease all the time, and
// evictions are tried again until a budget lets them.
func (r *run) readWrite(request *cluster.Request) {
	of := request.Resource
	if request.Subresource != "" {
		of += "/" + request.Subresource
	}
	if of == "pods/eviction" || of == "events" || (of == "leases" && request.Name == r.lease().Name) {
		return
	}
	w := Write{At: request.Time, Of: of + " " + request.Name, Code: request.Code, Native: request.Group == lifecyclev1alpha1.GroupName, Unauthorized: request.Annotations[decisionAnnotation] == "forbid"}
	if w.Native {
		w.Of = "native " + w.Of
	}
	r.history.Writes = append(r.history.Writes, w)
}

// preconditionOf is the UID an eviction is for, "" if it does not say.
func preconditionOf(body []byte) types.UID {
	var eviction policyv1.Eviction
	if json.Unmarshal(body, &eviction) != nil || eviction.DeleteOptions == nil || eviction.DeleteOptions.Preconditions == nil || eviction.DeleteOptions.Preconditions.UID == nil {
		return ""
	}
	return *eviction.DeleteOptions.Preconditions.UID
}

// deletedUID is the UID that a deletion is for, "" if it does not say.
func deletedUID(body []byte) types.UID {
	var options metav1.DeleteOptions
	if json.Unmarshal(body, &options) != nil || options.Preconditions == nil || options.Preconditions.UID == nil {
		return ""
	}
	return *options.Preconditions.UID
}

// stop ends everything that runs.
func (r *run) stop() error {
	var failures []error
	if r.stopActors != nil {
		r.stopActors()
		r.actorGroup.Wait()
	}
	if r.observer != nil {
		r.observer.stop()
	}
	for _, manager := range r.replicas {
		failures = append(failures, manager.stop())
	}
	if r.proxy != nil {
		failures = append(failures, r.proxy.close())
	}
	return errors.Join(failures...)
}

// cleanUp takes away what the run has made.
func (r *run) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var failures []error
	remove := func(object client.Object) {
		failures = append(failures, insist(ctx, "delete "+object.GetName(), func(ctx context.Context) error {
			return client.IgnoreNotFound(r.world.admin.Delete(ctx, object))
		}))
	}
	if r.history.Plan.refusal() != nil { // Its end may have failed.
		remove(refusingBinding())
		remove(r.refusingPolicy(*r.history.Plan.refusal()))
	}
	names := r.registered
	for _, of := range r.history.Names {
		names = append(names, of...)
	}
	for _, name := range names {
		remove(&v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if r.history.Plan.Has(FailingPolicy) {
		remove(&v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.failingName()}})
	}
	if r.history.Plan.Has(MutatedBudget) {
		remove(r.mutationBinding())
		remove(r.mutation())
	}
	failures = append(failures, insist(ctx, "let requests go", r.letRequestsGo))
	for i := range r.history.Plan.Workloads {
		if workload := &r.history.Plan.Workloads[i]; workload.Kind == Machines {
			remove(&v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.policyOf(workload)}})
		}
	}
	failures = append(failures, insist(ctx, "clean pods", r.cleanPods))
	remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})
	failures = append(failures, r.await(ctx, "the namespace to be gone", func(ctx context.Context) error {
		if err := r.cleanPods(ctx); err != nil {
			return err
		}
		err := r.world.admin.Get(ctx, client.ObjectKey{Name: r.namespace}, &corev1.Namespace{})
		if err == nil {
			err = errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	}))
	for _, node := range r.nodes {
		remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	return errors.Join(failures...)
}
