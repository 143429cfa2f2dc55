//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// populate makes the workloads and their interceptors.
func (r *run) populate(ctx context.Context) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: actors},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: actors},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + r.namespace}},
	}
	if err := r.world.admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind role of the interceptors: %w", err)
	}
	if err := r.prepareTroubles(ctx); err != nil {
		return err
	}
	if err := errors.Join(r.createRollout(ctx), r.createConsent(ctx)); err != nil {
		return err
	}
	for i := range r.history.Plan.Workloads {
		workload := &r.history.Plan.Workloads[i]
		interceptors := r.createInterceptors
		switch workload.Kind {
		case Machines:
			interceptors = r.createPolicy
		case Hooked:
			interceptors = r.createHook
		}
		if err := errors.Join(interceptors(ctx, workload), r.createResponders(workload)); err != nil {
			return err
		}
		if err := r.createWorkload(ctx, workload); err != nil {
			return err
		}
	}
	if err := r.await(ctx, "the workloads to be ready", r.whole); err != nil {
		return err
	}
	if err := r.exhaust(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, guardPatience)
	defer cancel()
	err := r.await(ctx, "the guards to be closed", func(ctx context.Context) error {
		_, left, err := r.look(ctx)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	if err != nil {
		r.history.Unguarded = err.Error()
	}
	return nil
}

// guardPatience is how long the guards of registrations with guard Always may take to be
// closed.
const guardPatience = 30 * time.Second

// accountOf is the service account of an interceptor.
func accountOf(workload *Workload, i int) string { return fmt.Sprintf("%s-i%d", workload.Name, i) }

// createInterceptors registers them, if need be, and begins to act for them.
func (r *run) createInterceptors(ctx context.Context, workload *Workload) error {
	before := ""
	for i, behaviour := range workload.Interceptors {
		name := fmt.Sprintf("i%d.%s.%s.chaos.example.com", i, workload.Name, r.namespace)
		r.history.Names[workload.Name] = append(r.history.Names[workload.Name], name)
		account := accountOf(workload, i)
		conf, err := r.world.Cluster.ConfigForServiceAccount(ctx, r.namespace, account)
		if err != nil {
			return err
		}
		if behaviour.Habit == OffClock {
			if err := errors.Join(r.bind(ctx, account, r.world.inst.Release+"-interceptor"), r.register(ctx, workload, i, name, account)); err != nil {
				return err
			}
			guest, err := newGuest(conf, r.namespace, name, behaviour, r.ledger)
			if err != nil {
				return err
			}
			r.guests = append(r.guests, guest)
			continue
		}
		c, err := client.New(conf, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("make client of %s: %w", account, err)
		}
		if workload.Registered {
			if err := r.register(ctx, workload, i, name, account); err != nil {
				return err
			}
		}
		a := &actor{name: name, before: before, habit: behaviour, client: c, ledger: r.ledger, ofPod: map[types.UID]bool{}, lied: map[types.UID]bool{}}
		r.actors = append(r.actors, a)
		before = name
	}
	return nil
}

func (r *run) register(ctx context.Context, workload *Workload, i int, name, account string) error {
	registration := builder.EvictionInterceptor(name).InNamespace(r.namespace).Pods(builder.AppLabel, workload.Name).
		Priority(int32(20000-100*i)).ActedBy(r.namespace, account)
	registration.EvictionInterceptor.Generation = 0
	if r.history.Plan.Mode == ModeAlways {
		registration.Guard(v1alpha1.GuardAlways)
	}
	object := registration.Obj()
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("register %s: %w", name, err)
	}
	return r.await(ctx, "registration "+name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", object.Status.Conditions)
		}
		return nil
	})
}

func (r *run) createWorkload(ctx context.Context, workload *Workload) error {
	pods := func(p *builder.PodWrapper) {
		p.NodeSelector(testLabel, r.namespace)
		switch {
		case workload.Kind == Machines:
			// An annotation to begin with, or the policy could not add another one.
			p.Label(testLabel, r.policyOf(workload)).Annotation(foreign+"machine", "true")
		case workload.Kind == Surging:
			p.Label(surge.OptInLabel, "enabled").Annotation(cluster.StartDelayAnnotation, "500ms")
		case !workload.Registered && len(workload.Interceptors) > 0:
			p.Interceptors(r.history.Names[workload.Name]...)
		}
		for _, responder := range r.history.Responders[workload.Name] {
			p.Spec.EvictionResponders = append(p.Spec.EvictionResponders, corev1.EvictionResponder{Name: responder.Name, Priority: responder.Priority})
		}
		if workload.Zone != "" {
			p.Label(rolloutLabel, rolloutName).Label(zoneLabel, workload.Zone)
		}
		if workload.Kind == Singleton {
			p.Label(singletonsLabel, singletonsName)
		}
		if workload.Tolerates {
			p.Tolerate()
		}
		if workload.Pinned {
			p.NodeSelector(corev1.LabelHostname, r.nodes[workload.Node])
		}
	}
	var object client.Object
	if workload.Stateful {
		object = builder.StatefulSet(r.namespace, workload.Name).Replicas(workload.Replicas).Pods(pods).Obj()
	} else {
		object = builder.Deployment(r.namespace, workload.Name).Replicas(workload.Replicas).Rolling("1", "0").Pods(pods).Obj()
	}
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("create workload %s: %w", workload.Name, err)
	}
	if workload.MaxUnavailable < 0 || workload.Kind == Singleton { // All singletons have one together.
		return nil
	}
	budget := builder.Budget(r.namespace, workload.Name).Selects(builder.AppLabel, workload.Name).MaxUnavailable(fmt.Sprint(workload.MaxUnavailable))
	return r.createBudget(ctx, budget.Obj(), workload.Replicas)
}

// createBudget makes a PodDisruptionBudget and waits until it counts so many healthy pods.
func (r *run) createBudget(ctx context.Context, budget *policyv1.PodDisruptionBudget, healthy int32) error {
	if err := r.world.admin.Create(ctx, budget); err != nil {
		return fmt.Errorf("create budget %s: %w", budget.Name, err)
	}
	return r.await(ctx, "budget "+budget.Name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ObservedGeneration != budget.Generation || budget.Status.CurrentHealthy != healthy {
			return fmt.Errorf("status %+v", budget.Status)
		}
		return nil
	})
}
