package page

import (
	"net/url"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// choice is a value that a parameter of an address can have. The first one of a list is what is
// chosen without the parameter.
type choice struct{ Value, Text string }

// chosen is the value of a parameter. One that is not known is that without the parameter, and a
// sentence that says so.
func chosen(query url.Values, parameter string, choices []choice) (value, unknown string) {
	wanted := query.Get(parameter)
	if slices.ContainsFunc(choices, func(c choice) bool { return c.Value == wanted }) {
		return wanted, ""
	}
	var known []string
	for _, c := range choices {
		if c.Value != "" {
			known = append(known, c.Value)
		}
	}
	const cells = 40
	return choices[0].Value, "There is no " + parameter + ` "` + text.Cut(text.Clean(wanted), cells) + `"; it can be ` + strings.Join(known, ", ") + ". It is ignored."
}

// unknownFragment says which parameters of the address are not known. It is on the page in any
// case, so that the page has the same parts.
func unknownFragment(unknown ...string) live.Fragment {
	return fragment("unknown", "unknown", slices.DeleteFunc(unknown, func(s string) bool { return s == "" }))
}
