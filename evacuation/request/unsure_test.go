package request

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// unsure is a resolver that may know that it does not know everybody.
type unsure struct {
	builder.FromAnnotation
	err error
}

func (u *unsure) Resolve(pod *corev1.Pod) ([]string, error) {
	names, _ := u.FromAnnotation.Resolve(pod)
	return names, u.err
}

// A plan is made once, so it is not made while the resolver may miss somebody.
func TestNoPlanByAResolverThatIsNotSure(t *testing.T) {
	b := newBench(t, newRequest().Obj(), webPod().Obj())
	resolver := &unsure{err: errors.New("the namespace is not known")}
	b.Resolver = resolver
	if _, err := b.reconcile(t); !errors.Is(err, resolver.err) {
		t.Errorf("error %v, want %v, to be called again", err, resolver.err)
	}
	if got, want := b.state(t), "active [] processed []"; got != want {
		t.Errorf("request: got %s, want %s", got, want)
	}
	resolver.err = nil
	b.mustReconcile(t)
	if got, want := b.state(t), "active [a.example.com] processed []"; got != want {
		t.Errorf("request: got %s, want %s", got, want)
	}
}
