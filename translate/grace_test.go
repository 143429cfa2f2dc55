package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestLongestGrace(t *testing.T) {
	const own = 30
	cases := map[string]struct {
		wishes []*int64
		want   *int64
	}{
		"nobody says anything":                         {nil, nil},
		"one leaves it to the pod":                     {[]*int64{nil}, nil},
		"one wants none at all":                        {[]*int64{new(int64(0))}, new(int64(0))},
		"one wants none at all, another the pod's own": {[]*int64{new(int64(0)), nil}, nil},
		"the pod's own, another wants none at all":     {[]*int64{nil, new(int64(0))}, nil},
		"one wants more than the pod's own":            {[]*int64{nil, new(int64(90))}, new(int64(90))},
		"one wants as much as the pod's own":           {[]*int64{nil, new(int64(30))}, nil},
		"two want less":                                {[]*int64{new(int64(5)), new(int64(7))}, new(int64(7))},
		"two want less, in the other order":            {[]*int64{new(int64(7)), new(int64(5))}, new(int64(7))},
		"one wants less, one more, one the pod's own":  {[]*int64{new(int64(7)), new(int64(50)), nil}, new(int64(50))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := translate.LongestGrace(own, tc.wishes...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("grace period (-want +got):\n%s", diff)
			}
			for i, wish := range tc.wishes {
				if !translate.CoversGrace(own, got, wish) {
					t.Errorf("wish %d is not covered by %v", i, got)
				}
			}
		})
	}
}

func TestCoversGrace(t *testing.T) {
	cases := map[string]struct {
		given, wanted *int64
		want          bool
	}{
		"both the pod's own":                        {nil, nil, true},
		"none at all is shorter than the pod's own": {new(int64(0)), nil, false},
		"the pod's own is longer than none at all":  {nil, new(int64(0)), true},
		"the pod's own is shorter than a minute":    {nil, new(int64(60)), false},
		"a minute is longer than the pod's own":     {new(int64(60)), nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := translate.CoversGrace(30, tc.given, tc.wanted); got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}
