package text

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// table is a grid of a name, a number that is never cut, and prose.
func table(width int, wrap bool) Grid {
	return Grid{
		Columns: []Column{{Heading: "NAME", Share: 30}, {Heading: "NODE", Share: 20}, {Heading: "AGE"}, {Heading: "MESSAGE", Share: 20, Prose: true}},
		Gap:     2, Width: width, Wrap: wrap,
	}
}

func TestGrids(t *testing.T) {
	rows := []Row{
		{Cells: []string{"shop/storefront-6fcbf75594-q28jh", "ip-10-0-12-34.internal", "12m", "waiting for a replacement to become available"}, Tone: Bad},
		{Cells: []string{"shop/db-0", "node-1", "5s", ""}},
	}
	cases := map[string]struct {
		grid Grid
		want []string
	}{
		"a pipe": {table(0, false), []string{
			"NAME                              NODE                    AGE  MESSAGE",
			"shop/storefront-6fcbf75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a replacement to become available",
			"shop/db-0                         node-1                  5s",
		}},
		"a wide terminal": {table(120, false), []string{
			"NAME                              NODE                    AGE  MESSAGE",
			"shop/storefront-6fcbf75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a replacement to become available",
			"shop/db-0                         node-1                  5s",
		}},
		"80 columns": {table(80, false), []string{
			"NAME                              NODE                    AGE  MESSAGE",
			"shop/storefront-6fcbf75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a re…",
			"shop/db-0                         node-1                  5s",
		}},
		"70 columns": {table(70, false), []string{
			"NAME                       NODE                    AGE  MESSAGE",
			"shop/storefr…f75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a…",
			"shop/db-0                  node-1                  5s",
		}},
		"the message has no room": {table(30, false), []string{
			"NAME         NODE          AGE",
			"shop/…q28jh  ip-10-…ernal  12m",
			"shop/db-0    node-1        5s",
		}},
		"prose is continued below": {table(70, true), []string{
			"NAME                       NODE                    AGE  MESSAGE",
			"shop/storefr…f75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a",
			"                                                        replacement to",
			"                                                        become",
			"                                                        available",
			"shop/db-0                  node-1                  5s",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, line := range tc.grid.Lines(rows) {
				got = append(got, line.Text)
				if tc.grid.Width > 0 && Cells(line.Text) > tc.grid.Width {
					t.Errorf("%q does not fit", line.Text)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// What prose wishes for costs names their middle, but never what is below their share.
func TestProseGetsItsWishIfNamesCanGiveWay(t *testing.T) {
	rows := []Row{{Cells: []string{"shop/storefront-6fcbf75594-q28jh", "ip-10-0-12-34.internal", "12m", "waiting for a replacement to become available"}}}
	for width, want := range map[int]string{
		80: "shop/storefr…f75594-q28jh  ip-10-0-12-34.internal  12m  waiting for a replaceme…",
		50: "shop/st…4-q28jh  ip-10…ernal  12m  waiting for a …",
		40: "shop/s…q28jh  ip-1…nal  12m  waiting fo…", // Less than its wish.
	} {
		grid := table(width, false)
		grid.Columns[3].Wish = 30
		if diff := cmp.Diff(want, grid.Lines(rows)[1].Text); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}

func TestTheTonesOfAGrid(t *testing.T) {
	lines := Grid{Columns: []Column{{Heading: "NAME"}}, Indent: 2, Gap: 2}.Lines([]Row{{Cells: []string{"a"}, Tone: Bad}, {Cells: []string{"b"}}})
	if diff := cmp.Diff([]Line{{"  NAME", Faint}, {"  a", Bad}, {"  b", Plain}}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Columns stay where they are while messages change.
func TestMessagesDoNotMoveColumns(t *testing.T) {
	row := Row{Cells: []string{"shop/storefront-6fcbf75594-q28jh", "ip-10-0-12-34.internal", "12m", "waiting for a replacement to become available"}}
	first := table(80, false).Lines([]Row{row})[0]
	row.Cells[3] += ", since a long time, and for much longer"
	if diff := cmp.Diff(first, table(80, false).Lines([]Row{row})[0]); diff != "" {
		t.Errorf("heading (-before +after):\n%s", diff)
	}
}
