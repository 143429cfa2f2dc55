package hook

import (
	"errors"
	"fmt"
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The API refuses a list that is longer, and with it all that is recorded.
func TestAHookThatIsFullTakesNoMoreRuns(t *testing.T) {
	status := &v1alpha1.EvacuationHookStatus{}
	for i := range maxRuns {
		if err := put(status, v1alpha1.HookRun{RequestUID: fmt.Sprint(i)}); err != nil {
			t.Fatalf("run %d: %v", i+1, err)
		}
	}
	if err := put(status, v1alpha1.HookRun{RequestUID: "one more"}); !errors.Is(err, errFull) {
		t.Errorf("one more run: %v, want %v", err, errFull)
	}
	if err := put(status, v1alpha1.HookRun{RequestUID: "7", Attempt: 2}); err != nil || status.Runs[7].Attempt != 2 {
		t.Errorf("a run that is there already: %v, it is %+v", err, status.Runs[7])
	}
	if len(status.Runs) != maxRuns {
		t.Errorf("there are %d runs, want %d", len(status.Runs), maxRuns)
	}
}
