//go:build unix

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
)

// guest is an interceptor that uses our SDK, as a third party does, with a clock of its
// own.
type guest struct {
	name    string
	habit   Behaviour
	manager ctrl.Manager
	ledger  *ledger

	mu    sync.Mutex
	begun map[types.UID]time.Time // By request.
}

// newGuest makes the interceptor, which acts under the account of conf.
func newGuest(conf *restclient.Config, namespace, name string, habit Behaviour, l *ledger) (*guest, error) {
	manager, err := ctrl.NewManager(conf, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make manager of %s: %w", name, err)
	}
	g := &guest{name: name, habit: habit, manager: manager, ledger: l, begun: map[types.UID]time.Time{}}
	wrong := clock.New()
	wrong.Advance(habit.Clock)
	if err := interceptor.Add(manager, g, interceptor.Options{Name: name, Clock: wrong, ServerClock: &interceptor.ServerClock{}}); err != nil {
		return nil, err
	}
	return g, nil
}

// Evacuate is done when it has worked for long enough, by the right time.
func (g *guest) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	begun, ok := g.begun[t.RequestUID]
	if !ok {
		begun = time.Now()
		g.begun[t.RequestUID] = begun
	}
	if left := g.habit.Work - time.Since(begun); left > 0 {
		return interceptor.Progress{Message: "working", CheckAfter: left}, nil
	}
	g.ledger.write(Entry{Deed: Finished, Request: t.RequestUID, Pod: t.PodUID, Interceptor: g.name})
	return interceptor.Progress{Done: true}, nil
}
