package docs

import (
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
)

func TestEveryCheckOfTheDoctorIsDocumented(t *testing.T) {
	content := page(t, "guides/doctor.md")
	documented := rows(content[strings.Index(content, "## Checks"):strings.Index(content, "## Other products")])
	for _, c := range doctor.Checks() {
		if _, ok := documented[c[0]]; !ok {
			t.Errorf("the check %s is not documented", c[0])
		}
		delete(documented, c[0])
	}
	for name := range documented {
		if name != "Check" && strings.Trim(name, "-") != "" {
			t.Errorf("the check %s is documented but does not exist", name)
		}
	}
}
