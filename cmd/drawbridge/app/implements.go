package app

import (
	"github.com/drawbridge-dev/drawbridge/evacuation/budget"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/request"
	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/pdb/guard"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// Who implements what, for interfaces whose package does not know who does. All others
// are asserted beside the type.
var (
	_ evictor.Exhausted    = &budget.Exhausted{}
	_ evictor.Native       = &native.View{}
	_ guard.Holds          = &vm.Store{}
	_ guard.Native         = &native.View{}
	_ registration.Metrics = &metrics.Registrations{}
	_ request.Resolver     = &registration.Registry{}
	_ webhook.Gate         = &guard.Gate{}
)
