package text

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAViewReplacesTheOneBefore(t *testing.T) {
	var out strings.Builder
	terminal := Terminal{Out: &out, Color: true}
	for _, lines := range [][]Line{{{Text: "a"}, {Text: "b", Tone: Bad}}, {{Text: "c"}}} {
		if err := terminal.Draw(lines); err != nil {
			t.Fatal(err)
		}
	}
	want := "\r\x1b[2Ka\n\r\x1b[2K\x1b[31mb\x1b[0m\n\x1b[J" + "\x1b[2A\r\x1b[2Kc\n\x1b[J"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestLinesArePrinted(t *testing.T) {
	lines := []Line{{Text: "a"}, {Text: "b", Tone: Bad}, {Tone: Bad}}
	for want, color := range map[string]bool{"a\n\x1b[31mb\x1b[0m\n\n": true, "a\nb\n\n": false} {
		var out strings.Builder
		if err := Print(&out, lines, color); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("in colors: %t, written (-want +got):\n%s", color, diff)
		}
	}
}
