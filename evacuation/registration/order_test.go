package registration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func entries(priorities map[string]int32) []*entry {
	var list []*entry
	for name, priority := range priorities {
		list = append(list, &entry{Info: Info{Name: name, Priority: priority}})
	}
	return list
}

func TestOrder(t *testing.T) {
	type regs = map[string]int32
	many := regs{}
	for i := range 20 {
		many[fmt.Sprintf("i%02d.example.com", i)] = int32(20 - i)
	}
	var first15 []string
	for i := range v1alpha1.MaxPodInterceptors {
		first15 = append(first15, fmt.Sprintf("i%02d.example.com", i))
	}
	cases := map[string]struct {
		annotated []string
		selected  regs
		want      []string
	}{
		"nobody":                             {},
		"only the annotation":                {annotated: []string{"z.x", "a.x"}, want: []string{"z.x", "a.x"}},
		"by priority":                        {selected: regs{"a.x": 1, "b.x": 3, "c.x": 2}, want: []string{"b.x", "c.x", "a.x"}},
		"equal ones by name":                 {selected: regs{"c.x": 7, "a.x": 7, "b.x": 7}, want: []string{"a.x", "b.x", "c.x"}},
		"the annotation is in the middle":    {[]string{"z.x", "a.x"}, regs{"m.x": 10001, "n.x": 9999}, []string{"m.x", "z.x", "a.x", "n.x"}},
		"the annotation's priority: by name": {[]string{"b.x"}, regs{"a.x": 10000, "c.x": 10000}, []string{"a.x", "b.x", "c.x"}},
		"before the first greater name, whatever comes after that": {[]string{"z.x", "a.x"}, regs{"m.x": 10000}, []string{"m.x", "z.x", "a.x"}},
		"greater than all":                        {[]string{"c.x", "a.x"}, regs{"z.x": 10000}, []string{"c.x", "a.x", "z.x"}},
		"in the middle of an unsorted annotation": {[]string{"b.x", "d.x", "a.x"}, regs{"c.x": 10000}, []string{"b.x", "c.x", "d.x", "a.x"}},
		"in both: the annotation's place":         {[]string{"b.x", "a.x"}, regs{"a.x": 99999, "b.x": 0, "c.x": 10000}, []string{"b.x", "a.x", "c.x"}},
		"too many: the last ones go":              {selected: many, want: first15},
		"too many: the annotation is not spared":  {[]string{"a.x"}, regs{"b.x": 10001}, []string{"b.x", "a.x"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, order(tc.annotated, entries(tc.selected))); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever order the registrations come in, the answer is the same; it has every
// name once, keeps the order of each source, and does not depend on who else is
// there: of two names the same always runs first.
func TestOrderIsTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"a.x", "b.x", "c.x", "d.x", "e.x", "f.x", "g.x", "h.x"}
	for range 5000 {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		annotated := slices.Clone(names[:random.IntN(4)])
		chosen := map[string]int32{}
		for range random.IntN(6) {
			chosen[names[random.IntN(len(names))]] = 9999 + random.Int32N(3)
		}
		selected := entries(chosen)
		got := order(annotated, slices.Clone(selected))

		random.Shuffle(len(selected), func(i, j int) { selected[i], selected[j] = selected[j], selected[i] })
		if again := order(annotated, slices.Clone(selected)); !slices.Equal(got, again) {
			t.Fatalf("annotation %q, registrations %v: %q, and in another order %q", annotated, chosen, got, again)
		}
		all := slices.Clone(annotated)
		for _, e := range selected {
			if !slices.Contains(all, e.Name) {
				all = append(all, e.Name)
			}
		}
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, slices.Sorted(slices.Values(all))) {
			t.Fatalf("annotation %q, registrations %v: got %q, want each once", annotated, chosen, got)
		}
		kept := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return !slices.Contains(annotated, name) })
		if !slices.Equal(kept, annotated) {
			t.Fatalf("annotation %q, registrations %v: got %q, which breaks the annotation's order", annotated, chosen, got)
		}
		// Without one of the registrations nothing else moves.
		for i, gone := range selected {
			if slices.Contains(annotated, gone.Name) {
				continue
			}
			want := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return name == gone.Name })
			if rest := order(annotated, slices.Delete(slices.Clone(selected), i, i+1)); !slices.Equal(want, rest) {
				t.Fatalf("annotation %q, registrations %v: %q, but without %s %q", annotated, chosen, got, gone.Name, rest)
			}
		}
	}
}
