package live

import (
	"html/template"
	"slices"
	"strings"
)

// Element is the fragment's whole element.
func (f Fragment) Element() template.HTML {
	if len(f.Children) == 0 && f.HTML != "" {
		return f.HTML
	}
	var b strings.Builder
	b.WriteString(string(f.Before))
	for _, child := range f.Children {
		b.WriteString(string(child.Element()))
	}
	b.WriteString(string(f.After))
	return template.HTML(b.String()) //nolint:gosec // It is made of HTML only.
}

// Diff returns the elements of now that differ from before, each to be put in the place of
// the one with its id. If the fragments themselves are others or in another order, or if
// there was nothing before, all are returned: then the page has places for other elements,
// and whole is true.
func Diff(before, now []Fragment) (changed []Fragment, whole bool) {
	if !sameIDs(before, now) {
		return now, true
	}
	for i := range now {
		changed = append(changed, differences(before[i], now[i])...)
	}
	return changed, false
}

// differences are those within a fragment: itself, or some of its children.
func differences(before, now Fragment) []Fragment {
	around := before.HTML == now.HTML && before.Before == now.Before && before.After == now.After
	if !around || !sameIDs(before.Children, now.Children) {
		return []Fragment{now}
	}
	var changed []Fragment
	for i := range now.Children {
		changed = append(changed, differences(before.Children[i], now.Children[i])...)
	}
	return changed
}

func sameIDs(a, b []Fragment) bool {
	return slices.EqualFunc(a, b, func(a, b Fragment) bool { return a.ID == b.ID })
}

// mark says that an element takes the place of the one with its id, wherever that is. An
// element of a table is only understood by itself within a template.
func mark(element template.HTML) string {
	text := strings.TrimSpace(string(element))
	end := strings.IndexAny(text, " \t\n/>")
	if end < 0 || !strings.HasPrefix(text, "<") {
		return "" // It is no element.
	}
	return "<template>" + text[:end] + ` hx-swap-oob="true"` + text[end:] + "</template>"
}
