package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestAllowDisruption(t *testing.T) {
	const name = "annotation " + v1alpha1.AllowDisruptionAnnotation + ": "
	const malformed = " is no int32 in plain decimal digits, such as 100000"
	cases := map[string]struct {
		text      *string
		want      *int32
		wantError string
	}{
		"without the annotation":           {},
		"a number":                         {text: ptr.To("100000"), want: ptr.To[int32](100000)},
		"zero":                             {text: ptr.To("0"), want: ptr.To[int32](0)},
		"a negative number":                {text: ptr.To("-2147483648"), want: ptr.To[int32](-2147483648)},
		"the largest that is allowed":      {text: ptr.To("2000000000"), want: ptr.To[int32](2000000000)},
		"above system-cluster-critical":    {text: ptr.To("2000000001"), wantError: name + `"2000000001" is above 2000000000, the priority of system-cluster-critical`},
		"the largest int32":                {text: ptr.To("2147483647"), wantError: name + `"2147483647" is above 2000000000, the priority of system-cluster-critical`},
		"more than an int32":               {text: ptr.To("2147483648"), wantError: name + `"2147483648"` + malformed},
		"empty":                            {text: ptr.To(""), wantError: name + `""` + malformed},
		"a word":                           {text: ptr.To("high"), wantError: name + `"high"` + malformed},
		"with a plus sign":                 {text: ptr.To("+1"), wantError: name + `"+1"` + malformed},
		"with leading zeros":               {text: ptr.To("007"), wantError: name + `"007"` + malformed},
		"minus zero":                       {text: ptr.To("-0"), wantError: name + `"-0"` + malformed},
		"with a space":                     {text: ptr.To(" 1"), wantError: name + `" 1"` + malformed},
		"with underscores between digits":  {text: ptr.To("1_000"), wantError: name + `"1_000"` + malformed},
		"in a base that is not ten":        {text: ptr.To("0x10"), wantError: name + `"0x10"` + malformed},
		"a fraction, even without a value": {text: ptr.To("1.0"), wantError: name + `"1.0"` + malformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{"other": "x"}
			if tc.text != nil {
				annotations[v1alpha1.AllowDisruptionAnnotation] = *tc.text
			}
			got, err := AllowDisruption(annotations)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, problem); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
