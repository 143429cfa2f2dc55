package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestTroubleIsRetryable(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no"))
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "EvictionRequest"}, "uid-1", field.ErrorList{field.Forbidden(field.NewPath("spec", "requesters"), "it is canceled")})
	const trouble = "Eviction could not be coordinated yet: "
	cases := map[string]struct {
		objects []client.Object
		fail    string
		err     error
		want    string
	}{
		"the live look fails":           {nil, "get Pod", forbidden, trouble + "the state of the pod could not be read, retry"},
		"the look at the node fails":    {[]client.Object{db0().Obj()}, "get Node", forbidden, trouble + "the request could not be written, retry"},
		"the lease cannot be written":   {[]client.Object{db0().Obj()}, "create Lease", forbidden, trouble + "the request could not be written, retry"},
		"the request cannot be written": {[]client.Object{db0().Obj()}, "apply", forbidden, trouble + "the request could not be written, retry"},
		"the request changed":           {[]client.Object{db0().Obj()}, "apply", apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("no")), trouble + "the request changed at the same moment, retry"},
		"the time is over":              {[]client.Object{db0().Obj()}, "apply", context.DeadlineExceeded, trouble + "there was not enough time, retry"},
		"a create is refused":           {[]client.Object{db0().Obj()}, "apply", invalid, trouble + "the request could not be written, retry"},
		"a revival is refused": {[]client.Object{db0().Obj(), builder.EvictionRequest("shop", "db-0", "uid-1").Requesters("native.example.com").Obj()},
			"apply", invalid, textRestarting},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.failing(func(call string) error {
				if strings.HasPrefix(call, tc.fail) {
					return tc.err
				}
				return nil
			})
			w.wantAnswer(tc.want)
			w.failing(nil)
			w.calls()
			if len(tc.objects) > 0 {
				w.wantAnswer(textAccepted) // Nothing is remembered of what did not happen.
			}
		})
	}
}

func TestCacheNotSyncedIsRetryable(t *testing.T) {
	w := newWorld(t, db0().Obj())
	w.handler.Synced = func() bool { return false }
	w.wantAnswer("Eviction could not be coordinated yet: the controller is still starting, retry")
	w.wantAnswer("allowed, "+warningOf("db-0", "429: Eviction could not be coordinated yet: the controller is still starting, retry"), raw(`{"deleteOptions":{"dryRun":["All"]}}`))
}

// panicking is a resolver with a bug.
type panicking struct{}

func (panicking) Resolve(*corev1.Pod) ([]string, error) { panic("a bug") }

func TestPanicIsRetryable(t *testing.T) {
	w := newWorld(t, db0().Obj())
	w.handler.Resolver = panicking{}
	w.wantAnswer("Eviction could not be coordinated yet: an internal error occurred, retry")
	w = newWorld(t, db0().Obj(), n1().Obj())
	w.failing(func(string) error { panic("a bug in a shared attempt") })
	w.wantAnswer("Eviction could not be coordinated yet: the request could not be written, retry")
}
