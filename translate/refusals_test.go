package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestTheTextOfARefusalIsMadeFit(t *testing.T) {
	const generic = `Eviction refused by interceptor "vm.example.com", retry later`
	cases := map[string]struct{ text, want string }{
		"a good text stays":           {"VM db-0 cannot be migrated: its disks are local", "VM db-0 cannot be migrated: its disks are local"},
		"several lines become one":    {"a\nb\r\n\tc", "a b c"},
		"what does not print is cut":  {"a\x1b[31mb\u202ec", "a[31mbc"},
		"what is too long is cut":     {strings.Repeat("ü", 300), strings.Repeat("ü", 196) + "..."},
		"no text":                     {"", generic},
		"nothing but space":           {" \n\t ", generic},
		"a text of a running request": {"Eviction triggered evacuation of VMI \"a/b\"", generic},
		"one further down":            {"admission webhook denied: Eviction triggered evacuation", generic},
		"one cut by a line break":     {"Eviction\ntriggered evacuation", generic},
		"a text of a budget":          {"it would violate the pod's disruption budget", generic},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, translate.Refused(about, "vm.example.com", tc.text).Message); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingStandsBehindARefusal(t *testing.T) {
	for name, verdict := range map[string]translate.Verdict{
		"refused": translate.Refused(about, "vm.example.com", "no"), "too many new": translate.TooManyNew(about),
	} {
		if got := verdict.Subject.Request; got != "" {
			t.Errorf("%s: names request %q", name, got)
		}
	}
}
