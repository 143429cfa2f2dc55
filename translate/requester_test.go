package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestRequesterName(t *testing.T) {
	cases := map[string]struct {
		username string
		want     string
	}{
		"a plain user":                              {"alice", "alice.users.drawbridge.dev"},
		"a service account":                         {"system:serviceaccount:karpenter:karp", "karp.karpenter.serviceaccounts.drawbridge.dev"},
		"a mail address is sanitised":               {"alice@example.com", "alice-example-com-ff8d9819.users.drawbridge.dev"},
		"upper case is sanitised":                   {"Alice", "alice-3bc51062.users.drawbridge.dev"},
		"a name like a sanitised one is hashed":     {"alice-3bc51062", "alice-3bc51062-bef81926.users.drawbridge.dev"},
		"a node":                                    {"system:node:n1", "system-node-n1-020f9827.users.drawbridge.dev"},
		"nothing at all":                            {"", "x-e3b0c442.users.drawbridge.dev"},
		"nothing that could be kept":                {"日本", "x-cf2abf0c.users.drawbridge.dev"},
		"a service account with dots in its name":   {"system:serviceaccount:ns:a.b", "a-b-b2a7fc76.ns.serviceaccounts.drawbridge.dev"},
		"half a service account is a user":          {"system:serviceaccount:ns", "system-serviceaccount-ns-ca6c4ae1.users.drawbridge.dev"},
		"a service account with too much is a user": {"system:serviceaccount:ns:a:b", "system-serviceaccount-ns-a-b-9af0a5a5.users.drawbridge.dev"},
		"a long name is shortened":                  {strings.Repeat("a", 64), strings.Repeat("a", 54) + "-ffe054fe.users.drawbridge.dev"},
		"a label of 63 characters stays":            {strings.Repeat("a", 63), strings.Repeat("a", 63) + ".users.drawbridge.dev"},
		"runs of odd characters are one hyphen":     {"a::/b", "a-b-3ec5c2ce.users.drawbridge.dev"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, translate.RequesterName(tc.username)); diff != "" {
				t.Errorf("requester (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzRequesterName(f *testing.F) {
	for _, pair := range [][2]string{
		{"alice", "Alice"},
		{"alice@example.com", "alice.example.com"},
		{"system:serviceaccount:a:b", "system:serviceaccount:b:a"},
		{"system:serviceaccount:a:b.c", "system:serviceaccount:a:b-c"},
		{"Alice", "alice-3bc51062"},
		{"", "x"},
		{"\x00", "\xff"},
		{strings.Repeat("a", 300), strings.Repeat("a", 301)},
		{"-", "--"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		nameA, nameB := translate.RequesterName(a), translate.RequesterName(b)
		for _, name := range []string{nameA, nameB} {
			if errs := validation.IsFullyQualifiedDomainName(field.NewPath("name"), name); len(errs) > 0 {
				t.Errorf("RequesterName gives %q: %v", name, errs.ToAggregate())
			}
		}
		if a != b && nameA == nameB {
			t.Errorf("users %q and %q share the requester %q", a, b, nameA)
		}
		if again := translate.RequesterName(a); again != nameA {
			t.Errorf("user %q is %q and then %q", a, nameA, again)
		}
	})
}

func FuzzIsFQDN(f *testing.F) {
	for _, s := range []string{
		"", "foo", "foo.example.com", "Foo.example.com", "foo_x.example.com", "foo..com", "foo.com.", ".foo", "-a.b", "a-.b",
		strings.Repeat("a", 63) + ".b", strings.Repeat("a", 64) + ".b", strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := len(validation.IsFullyQualifiedDomainName(field.NewPath("name"), s)) == 0 && !strings.HasSuffix(s, ".")
		if got := translate.IsFQDN(s); got != want {
			t.Errorf("IsFQDN(%q) = %t, the library says %t", s, got, want)
		}
	})
}
