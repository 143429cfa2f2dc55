package keys

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Page lists the keys.
const Page = "docs/reference/labels-and-annotations.md"

// Written is a key that stands somewhere.
type Written struct {
	Place Place
	Form  Form
	Key   string
	Value string
}

const (
	// quoted is how many characters of a value are repeated.
	quoted = 60
	// separator of places. The chart's policy splits by it.
	separator = ", "
)

// Problem says why what is written has no effect, or not the one that is meant; empty if
// nothing is wrong, or if the key is not ours. off are the switches that are off.
func (w Written) Problem(off ...string) string {
	if !IsOurs(w.Key) {
		return ""
	}
	row := byKey(w.Key)
	var what string
	switch {
	case row == nil:
		what = "Drawbridge knows no such key, so it does nothing; those it knows are in " + Page
	case row.Form != w.Form:
		what = fmt.Sprintf("it does nothing, because it is %s", row.Form.one())
	case !row.belongs(w.Place):
		what = "it does nothing here, it belongs on: " + row.places()
	case row.Switch != "" && slices.Contains(off, row.Switch) && (row.Idle == "" || w.Value != row.Idle):
		what = fmt.Sprintf("it does nothing while the value %s of the chart is false", row.Switch)
	case !row.understands(w.Value):
		what = fmt.Sprintf("%q is not understood, so it does nothing; the values are: %s", shown(w.Value), row.Values)
	default:
		return ""
	}
	return w.String() + ": " + what
}

// Warning is Problem, and also for a key that only Drawbridge writes: what whoever else
// writes it is told.
func (w Written) Warning(off ...string) string {
	if problem := w.Problem(off...); problem != "" {
		return problem
	}
	if row := byKey(w.Key); row != nil && row.Writer == Drawbridge {
		return w.String() + ": Drawbridge alone writes and removes it"
	}
	return ""
}

// String names the key and its place.
func (w Written) String() string { return fmt.Sprintf("%s %s (%s)", w.Form, w.Key, w.Place) }

func (f Form) one() string {
	if f == Annotation {
		return "an annotation"
	}
	return "a " + string(f)
}

func (r *Row) places() string {
	names := make([]string, 0, len(r.On))
	for _, p := range r.On {
		names = append(names, string(p))
	}
	return strings.Join(names, separator)
}

func (r *Row) understands(value string) bool {
	return r.Pattern == "" || regexp.MustCompile(r.pattern()).MatchString(value)
}

// pattern matches a whole value, also for CEL.
func (r *Row) pattern() string {
	if r.Pattern == "" {
		return ""
	}
	return "^(" + r.Pattern + ")$"
}

// shown is the beginning of a value, in one line and without quotes.
func shown(value string) string {
	if runes := []rune(value); len(runes) > quoted {
		value = string(runes[:quoted])
	}
	return strings.NewReplacer("\n", " ", "\r", " ", `"`, "'", `\`, "/").Replace(value)
}

// Metadata are labels and annotations that stand in one place.
type Metadata struct {
	Place               Place
	Labels, Annotations map[string]string
}

// Of lists the keys of ours on an object and in its pod template, sorted. What is in both
// with the same value counts in the template: the API server copies labels of templates
// to some workloads, and tools write the same ones in both.
func Of(object Metadata, template *Metadata) []Written {
	if template == nil {
		return object.written(Metadata{})
	}
	return append(object.written(*template), template.written(Metadata{})...)
}

func (m Metadata) written(but Metadata) []Written {
	var all []Written
	add := func(form Form, has, copied map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(has)) {
			if other, ok := copied[key]; IsOurs(key) && (!ok || other != has[key]) {
				all = append(all, Written{Place: m.Place, Form: form, Key: key, Value: has[key]})
			}
		}
	}
	// A request has the labels of its pod.
	if m.Place != "EvictionRequest" {
		add(Label, m.Labels, but.Labels)
	}
	add(Annotation, m.Annotations, but.Annotations)
	return all
}
