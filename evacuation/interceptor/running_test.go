package interceptor

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheEndOfATurnStopsItsWork(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "shop", Name: "a"}
	cases := map[string]struct {
		isFor types.UID
		key   types.NamespacedName
		want  bool
	}{
		"of the request in work":                 {"er-1", key, true},
		"of a request that was not read yet":     {"", key, true},
		"of an earlier request of the name":      {"er-2", key, false},
		"of a request that nobody is at work on": {"er-1", types.NamespacedName{Namespace: "shop", Name: "b"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &running{}
			turn, end := r.begin(t.Context(), key)
			defer end()
			if tc.isFor != "" {
				r.isFor(key, tc.isFor)
			}
			r.over(tc.key, "er-1")
			if got := errors.Is(context.Cause(turn), errTurnOver); got != tc.want {
				t.Errorf("stopped: %t, want %t", got, tc.want)
			}
		})
	}
}
