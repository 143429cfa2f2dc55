package events

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInterceptorEvents(t *testing.T) {
	const name = "a.example.com"
	failure := errors.New("no quota")
	tests := map[string]struct {
		got, want Event
	}{
		"started": {
			EvacuationStarted(name, "web-1", "copying"),
			Event{"Normal", "EvacuationStarted", "EvacuatePod", "Interceptor a.example.com has begun with pod web-1: copying"},
		},
		"started without a word": {
			EvacuationStarted(name, "web-1", " "),
			Event{"Normal", "EvacuationStarted", "EvacuatePod", "Interceptor a.example.com has begun with pod web-1."},
		},
		"completed": {
			EvacuationCompleted(name, "web-1", "copied"),
			Event{"Normal", "EvacuationCompleted", "EvacuatePod", "Interceptor a.example.com is done with pod web-1: copied"},
		},
		"failed": {
			EvacuationFailed(name, "web-1", failure),
			Event{"Warning", "EvacuationFailed", "EvacuatePod", "Interceptor a.example.com failed with pod web-1 and will try again: no quota"},
		},
		"canceled": {
			EvacuationCanceled(name, "web-1"),
			Event{"Normal", "EvacuationCanceled", "CancelEvacuation", "Interceptor a.example.com has undone what it began with pod web-1."},
		},
		"cancel failed": {
			CancelFailed(name, "web-1", failure),
			Event{"Warning", "CancelFailed", "CancelEvacuation", "Interceptor a.example.com could not undo what it began with pod web-1 and will try again: no quota"},
		},
		"past the point of no return": {
			PointOfNoReturn(name, "web-1"),
			Event{"Warning", "PointOfNoReturn", "CancelEvacuation", "Interceptor a.example.com is past the point of no return with pod web-1: it cannot undo what it began."},
		},
		"report refused": {
			ReportRefused(name, failure),
			Event{"Warning", "ReportRefused", "ReportProgress", "The report of interceptor a.example.com is refused: no quota"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
