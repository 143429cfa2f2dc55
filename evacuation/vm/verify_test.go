package vm

import (
	"errors"
	"testing"
)

func TestWhatIsNotStored(t *testing.T) {
	for title, tc := range map[string]struct {
		patch  string
		answer map[string]any
		want   string
	}{
		"a field that was set":                   {`[{"op":"add","path":"/status/a","value":"x"}]`, map[string]any{"status": map[string]any{"a": "x"}}, ""},
		"a field that was put back":              {`[{"op":"add","path":"/status/a","value":"x"}]`, map[string]any{"status": map[string]any{"a": "y"}}, "/status/a"},
		"a field that is not there":              {`[{"op":"replace","path":"/status/a","value":"x"}]`, map[string]any{"status": map[string]any{}}, "/status/a"},
		"no parent":                              {`[{"op":"add","path":"/status/a","value":"x"}]`, map[string]any{}, "/status/a"},
		"a field that was removed":               {`[{"op":"remove","path":"/status/a"}]`, map[string]any{"status": map[string]any{}}, ""},
		"a field that is there again":            {`[{"op":"remove","path":"/status/a"}]`, map[string]any{"status": map[string]any{"a": "x"}}, "/status/a"},
		"a key with a slash":                     {`[{"op":"add","path":"/metadata/annotations/a.b~1c","value":"x"}]`, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a.b/c": "x"}}}, ""},
		"a map with what others added":           {`[{"op":"add","path":"/m","value":{"a":"x"}}]`, map[string]any{"m": map[string]any{"a": "x", "b": "y"}}, ""},
		"a map without its key":                  {`[{"op":"add","path":"/m","value":{"a":"x"}}]`, map[string]any{"m": map[string]any{"b": "y"}}, "/m"},
		"a number":                               {`[{"op":"add","path":"/n","value":3}]`, map[string]any{"n": int64(3)}, ""},
		"null":                                   {`[{"op":"add","path":"/n","value":null}]`, map[string]any{"n": nil}, ""},
		"tests are not looked at":                {`[{"op":"test","path":"/n","value":3}]`, map[string]any{}, ""},
		"an item of a list":                      {`[{"op":"add","path":"/l/0","value":"x"}]`, map[string]any{"l": []any{"x", "y"}}, ""},
		"an item at the end":                     {`[{"op":"add","path":"/l/-","value":"x"}]`, map[string]any{"l": []any{"y", "x"}}, ""},
		"an item that was removed, and the next": {`[{"op":"remove","path":"/l/0"}]`, map[string]any{"l": []any{"y"}}, ""},
		"what a later operation takes back":      {`[{"op":"add","path":"/m/a","value":"x"},{"op":"remove","path":"/m"}]`, map[string]any{}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			err := verifyStored([]byte(tc.patch), tc.answer)
			var discarded *discardedError
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (!errors.As(err, &discarded) || discarded.path != tc.want):
				t.Errorf("want %s discarded, got %v", tc.want, err)
			}
		})
	}
}
