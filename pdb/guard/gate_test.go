package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestGate(t *testing.T) {
	gate := func(labels bool, h holds) *Gate {
		g, err := NewGate(labels, h)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g, off := gate(true, holds{"held": "so"}), gate(false, holds{"held": "so"})
	for name, tc := range map[string]struct {
		pod          *builder.PodWrapper
		gate         *Gate
		closed, held bool
	}{
		"a pod without a guard":               {webPod("web-1"), g, false, false},
		"a closed guard":                      {webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed), g, true, false},
		"a held pod":                          {webPod("held"), g, false, true},
		"nobody holds":                        {webPod("held"), gate(true, holds{}), false, false},
		"a label from when there were guards": {webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed), off, false, false},
		"a held pod where there are none":     {webPod("held"), off, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			if diff := cmp.Diff([]bool{tc.closed, tc.held, tc.closed || tc.held}, []bool{tc.gate.Closed(pod), tc.gate.Held(pod), tc.gate.Blocks(pod)}); diff != "" {
				t.Errorf("closed, held, blocks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGateNeedsSomebodyWhoSaysWhatIsHeld(t *testing.T) {
	_, err := NewGate(true, nil)
	if want := "gate of the guards: Holds is not set"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
