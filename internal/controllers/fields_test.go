package controllers

import "testing"

func TestRequireNamesAllThatIsMissing(t *testing.T) {
	if err := Require("controller x", map[string]bool{"Client": true, "Clock": true}); err != nil {
		t.Errorf("with all fields: %v", err)
	}
	// The order must not be that of a map: it is random.
	for range 20 {
		err := Require("controller x", map[string]bool{"Policy": false, "Clock": false, "Client": true, "APIReader": false})
		want := "controller x: APIReader is not set\nClock is not set\nPolicy is not set"
		if err == nil || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
}
