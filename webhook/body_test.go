package webhook

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whoever sends no length must be told the same.
func TestHowMuchOfABodyIsRead(t *testing.T) {
	cases := map[string]struct {
		body    string
		unknown bool
		want    error
	}{
		"nothing":                          {body: ""},
		"as much as fits":                  {body: "1234"},
		"a byte more":                      {body: "12345", want: errTooLarge},
		"as much as fits, without length":  {body: "1234", unknown: true},
		"a byte more, without length":      {body: "12345", unknown: true, want: errTooLarge},
		"much more than fits, without any": {body: strings.Repeat("x", 1000), unknown: true, want: errTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tc.body))
			if tc.unknown {
				r.ContentLength = -1
			}
			got, err := readBody(r, 4)
			if !errors.Is(err, tc.want) || tc.want == nil && string(got) != tc.body {
				t.Errorf("read %q and %v, want %q and %v", got, err, tc.body, tc.want)
			}
		})
	}
}
