package drain

import (
	"errors"
	"io"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

func TestThePlanIsPrinted(t *testing.T) {
	o, out := testOptions()
	err := planOf([]string{"node-1"}, []fate{
		{namespace: "shop", pod: "web", node: "node-1", would: "be evicted at once"},
		{namespace: "shop", pod: "db-0", node: "node-1", would: "be evicted after a.example.com, then b.example.com"},
		{namespace: "kube-system", pod: "agent", node: "node-1", stays: true, would: "stay: DaemonSet agent"},
	}).print(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "plan.golden.txt", out.String())
}

// closedPipe is what is left of a pipe when its reader has gone.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestThePlanThatNobodyReadsIsAnError(t *testing.T) {
	if err := planOf([]string{"node-1"}, nil).print(closedPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("want %v, have %v", io.ErrClosedPipe, err)
	}
}
