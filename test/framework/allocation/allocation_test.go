package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var sink []byte

func TestWhatWorkAllocatesIsCounted(t *testing.T) {
	tests := map[string]struct {
		work func()
		want Cost
	}{
		"nothing":             {func() {}, Cost{}},
		"one slice":           {func() { sink = make([]byte, 1024) }, Cost{1, 1024}},
		"in more than one go": {func() { sink = make([]byte, 64); sink = make([]byte, 128) }, Cost{2, 192}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Of(tt.work)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneRunDoesNotCount(t *testing.T) {
	calls := 0
	got := Of(func() {
		if calls++; calls == 1 {
			sink = make([]byte, 1<<20)
		}
	})
	if diff := cmp.Diff(Cost{}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestALimitIsOnBoth(t *testing.T) {
	most := Cost{2, 100}
	tests := map[string]struct {
		got  Cost
		want bool
	}{
		"as much":        {Cost{2, 100}, false},
		"too often":      {Cost{3, 100}, true},
		"too many bytes": {Cost{2, 101}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exceeds(tt.got, most); got != tt.want {
				t.Errorf("exceeds: %t, want %t", got, tt.want)
			}
		})
	}
}
