package text

import "testing"

func TestOneLine(t *testing.T) {
	cases := map[string]struct {
		text string
		most int
		want string
	}{
		"what fits":                       {"a b", 3, "a b"},
		"lines and tabs":                  {" a\n\tb  c\r\n", 10, "a b c"},
		"what is too long":                {"äöüä", 3, "äö…"},
		"spaces are not what is too long": {"a      b", 3, "a b"},
		"room for nothing":                {"ab", 1, "…"},
		"nothing":                         {" \n", 3, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := OneLine(tc.text, tc.most); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
