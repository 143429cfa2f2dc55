package interceptor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor/interceptortest"
)

func TestSDKAfterARestart(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *interceptortest.Bench {
		t.Helper()
		b := interceptortest.New(t, &undoing{scripted: scripted{progress: working("copying")}}, interceptortest.Options{})
		b.Activate()
		b.Advance(time.Minute)
		return b
	}
	t.Run("it goes on at once", func(t *testing.T) {
		t.Parallel()
		b := begin(t)
		b.Restart(&undoing{scripted: scripted{progress: working("copying")}})
		wantMethods(t, b, "Evacuate", "Evacuate")
		if start := b.Report().StartTime; !b.Calls()[1].Target.StartedAt.Equal(start.Time) {
			t.Errorf("it is told it began at %s, want %s", b.Calls()[1].Target.StartedAt, start)
		}
		wantEvents(t, b, "Normal EvacuationStarted")
	})
	t.Run("it undoes what was canceled, once", func(t *testing.T) {
		t.Parallel()
		b := begin(t)
		b.Restart(&scripted{}) // Nobody is there who could cancel.
		b.Cancel()
		b.Restart(&undoing{})
		b.Changed()
		b.Advance(time.Hour)
		wantMethods(t, b, "Evacuate", "Evacuate", "Cancel")
	})
	t.Run("it undoes what it may have begun before it could say so", func(t *testing.T) {
		t.Parallel()
		b := interceptortest.New(t, &scripted{progress: working("copying")}, interceptortest.Options{})
		b.FailReports(errors.New("connection refused"))
		b.Activate()
		b.Restart(&scripted{})
		b.Cancel()
		b.Restart(&undoing{})
		b.Changed()
		if m := b.Methods(); m[len(m)-1] != "Cancel" {
			t.Errorf("calls %v, want Cancel at last", m)
		}
		wantEvents(t, b) // It does not know that there was anything.
	})
	t.Run("it learns again that there is no way back", func(t *testing.T) {
		t.Parallel()
		b := begin(t)
		b.Restart(&scripted{})
		b.Cancel()
		b.Restart(&undoing{scripted: scripted{progress: done("")}, cancelErr: interceptor.ErrPointOfNoReturn})
		b.Changed()
		wantMethods(t, b, "Evacuate", "Evacuate", "Cancel", "Evacuate")
	})
}
