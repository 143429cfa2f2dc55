package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Minute is how often a writer wrote an object within a minute of the API server's clock.
type Minute struct {
	Minute  time.Time
	Object  Object
	Writer  Writer
	Writes  int
	Refused int
}

// Minutes lists every write of the manager by object and minute, in the order of the
// minutes. Heartbeats are among them.
func Minutes(log cluster.Requests, o Options) []Minute {
	type key struct {
		minute time.Time
		object Object
		writer Writer
	}
	counts := map[key]*Minute{}
	var all []*Minute
	o.Heartbeat = nil
	for object, writes := range gather(log, o).ours {
		for writer, mine := range writes {
			for _, w := range mine {
				k := key{w.request.Time.Truncate(time.Minute), object, writer}
				if counts[k] == nil {
					counts[k] = &Minute{Minute: k.minute, Object: object, Writer: writer}
					all = append(all, counts[k])
				}
				counts[k].Writes++
				if w.request.Code >= 300 {
					counts[k].Refused++
				}
			}
		}
	}
	minutes := make([]Minute, len(all))
	for i, m := range all {
		minutes[i] = *m
	}
	slices.SortFunc(minutes, func(a, b Minute) int {
		return cmp.Or(a.Minute.Compare(b.Minute), strings.Compare(a.Object.String(), b.Object.String()), strings.Compare(a.Writer.String(), b.Writer.String()))
	})
	return minutes
}

// Print writes the list, for people.
func Print(to io.Writer, minutes []Minute) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MINUTE\tWRITES\tREFUSED\tOBJECT\tWRITER")
	for _, m := range minutes {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", m.Minute.Format("15:04"), m.Writes, m.Refused, m.Object, m.Writer)
	}
	return table.Flush()
}
