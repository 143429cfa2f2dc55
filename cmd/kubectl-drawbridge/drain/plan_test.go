package drain

import (
	"errors"
	"io"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

func TestThePlanIsPrinted(t *testing.T) {
	short := []fate{
		{namespace: "shop", pod: "web", node: "node-1", would: "be evicted at once"},
		{namespace: "shop", pod: "db-0", node: "node-1", would: "be evicted after a.example.com, then b.example.com"},
		{namespace: "kube-system", pod: "agent", node: "node-1", stays: true, would: "stay: DaemonSet agent"},
	}
	long := []fate{
		{
			namespace: "payments-production", pod: "settlement-reconciliation-worker-7d9c5b6f4d-x2z9q", node: "ip-10-0-12-34.eu-central-1.compute.internal",
			would: "be evicted after surge.drawbridge.dev; currently budget settlement refuses it",
		},
		{namespace: "shop", pod: "web", node: "ip-10-0-12-34.eu-central-1.compute.internal", would: "be evicted at once"},
	}
	cases := map[string]struct {
		fates []fate
		width int // 0 is a pipe.
	}{
		"plan":               {short, 0},
		"plan-terminal":      {short, 80},
		"plan-long":          {long, 0},
		"plan-long-terminal": {long, 80},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out := testOptions()
			o.Size = func() (int, int, bool) { return tc.width, 24, tc.width > 0 }
			o.Getenv = func(key string) string { return map[string]string{"NO_COLOR": "1"}[key] }
			if err := planOf([]string{"node-1"}, tc.fates).print(o); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, name+".golden.txt", out.String())
		})
	}
}

// closedPipe is what is left of a pipe when its reader has gone.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestThePlanThatNobodyReadsIsAnError(t *testing.T) {
	o, _ := testOptions()
	o.Out = closedPipe{}
	if err := planOf([]string{"node-1"}, nil).print(o); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("want %v, have %v", io.ErrClosedPipe, err)
	}
}
