package webhook

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// unsure is a resolver that may know that it does not know everybody.
type unsure struct {
	annotation
	err error
}

func (u *unsure) Resolve(pod *corev1.Pod) ([]string, error) { return u.names(pod), u.err }

// A pod that seems to have no interceptors is not let go while the resolver may
// have missed one, and nothing is written.
func TestAResolverThatIsNotSureIsRetryable(t *testing.T) {
	w := newWorld(t, builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning).Obj(), n1().Obj())
	resolver := &unsure{err: errors.New("the namespace is not known")}
	w.handler.Resolver = resolver
	w.wantAnswer("Eviction could not be coordinated yet: the state of the pod could not be read, retry")
	w.wantCalls()
	resolver.err = nil
	w.wantAnswer("allowed")
}

// An interceptor's account does not become a requester of its own pod because the
// resolver missed it.
func TestAResolverThatIsNotSureMakesNoRequester(t *testing.T) {
	w := guarded(t, builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").Leased(alice, leaseN1))
	resolver := &lagging{unsure{err: errors.New("the namespace is not known")}}
	w.handler.Resolver = resolver
	w.wantAnswer("Eviction could not be coordinated yet: the state of the pod could not be read, retry", asActor)
	w.wantCalls()
}

// lagging misses everybody.
type lagging struct{ unsure }

func (l *lagging) Resolve(*corev1.Pod) ([]string, error) { return nil, l.err }
