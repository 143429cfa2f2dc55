package text

import "testing"

func TestFew(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c and 2 more": {"a", "b", "c", "d", "e"},
	} {
		if got := Few(names, 3); got != want {
			t.Errorf("of %v: got %q, want %q", names, got, want)
		}
	}
}

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

func TestTail(t *testing.T) {
	cases := map[string]struct {
		data string
		most int
		want string
	}{
		"what fits":                                 {"abc", 3, "abc"},
		"the end of what is too long":               {"abcdef", 3, "def"},
		"a character is not cut":                    {"aäb", 2, "b"},
		"a character of four bytes is not cut":      {"a😀b", 4, "b"},
		"what is no UTF-8 is replaced":              {"a\xffb", 9, "a\uFFFDb"},
		"what replaces it is not beyond the length": {"\xff\xff\xffb", 4, "\uFFFDb"},
		"nothing but continuations":                 {"\x80\x80\x80\x80\x80", 4, "\uFFFD"},
		"nothing":                                   {"", 4, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Tail([]byte(tc.data), tc.most); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
