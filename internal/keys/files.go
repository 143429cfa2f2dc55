package keys

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// entry is a row in the chart's file: texts alone, because a map of CEL has values of one
// type.
type entry struct {
	// Is is the form: "a label".
	Is string `json:"is"`
	// On are the places, separated by separator.
	On string `json:"on"`
	// Own is "true" if Drawbridge alone writes it.
	Own     string `json:"own"`
	Values  string `json:"values"`
	Pattern string `json:"pattern"`
	Switch  string `json:"switch"`
	Idle    string `json:"idle"`
}

// ChartFile is the file of the chart from which its policy is made.
func ChartFile() ([]byte, error) {
	file := struct {
		Domains []string         `json:"domains"`
		Page    string           `json:"page"`
		Keys    map[string]entry `json:"keys"`
	}{Domains: domains, Page: Page, Keys: map[string]entry{}}
	for i := range Rows {
		r := &Rows[i]
		e := entry{Is: r.Form.one(), On: r.places(), Values: r.Values, Pattern: r.pattern(), Switch: r.Switch, Idle: r.Idle}
		if r.Writer == Drawbridge {
			e.Own = "true"
		}
		file.Keys[r.Key] = e
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(file); err != nil {
		return nil, fmt.Errorf("encode the keys: %w", err)
	}
	return buffer.Bytes(), nil
}

const intro = `<!-- Written by make generate-docs from internal/keys. Do not edit. -->

# Labels and annotations

These are all names under ` + "`drawbridge.dev`" + `. Any other label or annotation of this domain, one of these in another place,
and a value that is not listed have no effect. Whoever writes one gets a warning:

    $ kubectl label namespace shop drawbridge.dev/surge=true
    Warning: ... label drawbridge.dev/surge (Namespace): "true" is not understood, so it does nothing; the values are: enabled, disabled
    namespace/shop labeled

The warning comes from the API server, by the ValidatingAdmissionPolicy ` + "`keys.drawbridge.dev`" + ` of the chart, so it also
comes while Drawbridge is down. It refuses nothing. It looks at pods, their workloads, Namespaces, Nodes,
PriorityClasses, PodDisruptionBudgets, ClusterRoles and the kinds of Drawbridge, and only at what a write adds or
changes. What controllers create is not looked at. For all that is in the cluster already,
[` + "`kubectl drawbridge doctor`" + `](../guides/doctor.md) has the check ` + "`keys`" + `.

Labels and annotations of subdomains, such as ` + "`example.drawbridge.dev/team`" + `, belong to whoever made them up. The
exceptions are the domains in which Drawbridge names its interceptors and requesters:
%s.

## Yours

| Key | | On | Values | Needs | Meaning |
|---|---|---|---|---|---|
`

const own = `
## Drawbridge's own

Drawbridge alone writes and removes them, and whoever else writes one gets a warning.

| Key | | On | Meaning |
|---|---|---|---|
`

// ReferencePage is the page of the documentation.
func ReferencePage() []byte {
	var names []string
	for _, domain := range domains[1:] {
		names = append(names, "`"+domain+"`")
	}
	var page, rest strings.Builder
	fmt.Fprintf(&page, intro, strings.Join(names, ",\n"))
	for i := range Rows {
		r := &Rows[i]
		if r.Writer == Drawbridge {
			fmt.Fprintf(&rest, "| `%s` | %s | %s | %s |\n", r.Key, r.Form, r.places(), r.About)
			continue
		}
		about := r.About
		if r.Writer == Chart {
			about += ". The chart writes it"
		}
		needs := ""
		if r.Switch != "" {
			needs = "`" + r.Switch + "`"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s | %s |\n", r.Key, r.Form, r.places(), r.Values, needs, about)
	}
	return []byte(page.String() + own + rest.String())
}
