package webhook

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/builder"
)

// unsure is a resolver that may know that it does not know everybody.
type unsure struct {
	annotation
	err error
}

func (u *unsure) Resolve(pod *corev1.Pod) ([]string, error) { return u.Interceptors(pod), u.err }

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

// Before the plan is made nobody but Drawbridge has anything to write but
// conditions of its own. While an interceptor may be missing, that is all that is
// known.
func TestAPlanIsNotMadeByOthersWhileTheResolverIsNotSure(t *testing.T) {
	unplanned := builder.EvictionRequest("shop", "db-0", "uid-1").Created(created)
	planned := unplanned.Clone().Interceptors().Active(evictor, t0)
	noted := unplanned.Clone().Condition("example.com/Noted", "Noted", t0)
	w := newWorld(t, builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Phase(corev1.PodRunning).Obj())
	resolver := &unsure{err: errors.New("the namespace is not known")}
	handler := statusHandler(t0)
	handler.Cached, handler.Resolver, handler.OwnUsername = w.cache, resolver, ownAdmin
	handler.Registrations = registered{interA: {actorA}}
	for _, tc := range []struct {
		what, user string
		after      *builder.EvictionRequestWrapper
		err        error
		want       string
	}{
		{"a plan of a stranger's", stranger, planned, resolver.err, "status.activeInterceptors: Forbidden: only Drawbridge may write this as long as it is not known who intercepts the pod"},
		{"a condition of a stranger's", stranger, noted, resolver.err, ""},
		{"a plan of ours", ownAdmin, planned, resolver.err, ""},
		{"a plan when nobody is missing", stranger, planned, nil, ""},
	} {
		resolver.err = tc.err
		response := answerIn(t, post(handler, writer(tc.user, unplanned, tc.after)))
		if response.Allowed != (tc.want == "") || (tc.want != "" && !strings.Contains(response.Result.Message, tc.want)) {
			t.Errorf("%s: allowed %t, %+v; want %q", tc.what, response.Allowed, response.Result, tc.want)
		}
	}
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
func (l *lagging) Interceptors(*corev1.Pod) []string     { return nil }
