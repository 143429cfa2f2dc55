package jsonpatch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

func TestEncode(t *testing.T) {
	cases := map[string]struct {
		op   jsonpatch.Op
		want string
	}{
		"a test of the object":         {jsonpatch.TestUID("uid-1"), `[{"op":"test","path":"/metadata/uid","value":"uid-1"}]`},
		"null is sent":                 {jsonpatch.Test("/a", jsonpatch.Null), `[{"op":"test","path":"/a","value":null}]`},
		"an empty object is sent":      {jsonpatch.Add("/a", struct{}{}), `[{"op":"add","path":"/a","value":{}}]`},
		"false is sent":                {jsonpatch.Replace("/a", false), `[{"op":"replace","path":"/a","value":false}]`},
		"a removal has no value":       {jsonpatch.Remove("/a"), `[{"op":"remove","path":"/a"}]`},
		"the key of an annotation":     {jsonpatch.Remove(jsonpatch.Annotation("a.b/c~d")), `[{"op":"remove","path":"/metadata/annotations/a.b~1c~0d"}]`},
		"the key of a label":           {jsonpatch.Remove(jsonpatch.Label("a.b/c")), `[{"op":"remove","path":"/metadata/labels/a.b~1c"}]`},
		"what looks escaped is not so": {jsonpatch.Remove("/" + jsonpatch.Escape("~1")), `[{"op":"remove","path":"/~01"}]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := jsonpatch.Encode([]jsonpatch.Op{tc.op})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeRefusesWhatJSONCannotHold(t *testing.T) {
	if patch, err := jsonpatch.Encode([]jsonpatch.Op{jsonpatch.Add("/a", func() {})}); err == nil {
		t.Errorf("got %s, want an error", patch)
	}
}
