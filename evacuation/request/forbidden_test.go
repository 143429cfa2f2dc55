package request

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// That a request goes on is told once: in the condition, and in one event.
func TestWhatGoesOnSaysWhy(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors("a.example.com").Obj()
	says := func(d process.Decision) (string, []events.Event) {
		before := er.DeepCopy()
		noteForbidden(er, d, noon)
		return messageOf(er, v1alpha1.ConditionCancellationForbidden), forbiddenAnnouncements(before, er)
	}
	if said, told := says(process.Decision{}); said != "" || told != nil {
		t.Errorf("a request that somebody wants says %q, %v", said, told)
	}
	want := "The eviction has no requester left, but it continues: a.example.com is past the point of no return."
	for i, wantEvents := range [][]events.Event{{events.CancellationForbidden(want)}, nil} {
		said, told := says(process.Decision{Forbidding: "a.example.com"})
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("condition (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantEvents, told); diff != "" {
			t.Errorf("events after %d times (-want +got):\n%s", i+1, diff)
		}
	}
}
