package cli

import (
	"testing"
)

func TestTheCharacterSet(t *testing.T) {
	for name, tc := range map[string]struct {
		env   map[string]string
		ascii bool
	}{
		"nothing is said":    {nil, false},
		"UTF-8":              {map[string]string{"LANG": "en_US.UTF-8"}, false},
		"C":                  {map[string]string{"LANG": "C"}, true},
		"LC_ALL comes first": {map[string]string{"LC_ALL": "C.utf8", "LANG": "C"}, false},
	} {
		o := &Options{Getenv: func(key string) string { return tc.env[key] }}
		if o.ASCIIOnly() != tc.ascii {
			t.Errorf("%s: ascii %t, want %t", name, o.ASCIIOnly(), tc.ascii)
		}
	}
}
