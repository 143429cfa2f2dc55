package page

import (
	"html/template"
	"math"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

const (
	// lineHeight of the axis, in pixels. All heights are pixels, and all widths are percent, so
	// that letters keep their shape at every width of the window.
	lineHeight = 15
	// baseline of the letters within a line.
	baseline = 12
	// maxAhead is how much of the chart what is expected may take: an interceptor may expect
	// to be done in a year. minAhead is left free for what stands beside the last bars.
	maxAhead = 0.4
	minAhead = 0.08
	// marks is how many times the axis has at most.
	marks = 7
	// unitsPerChart is in how many steps its end moves on. Bars of the past stay where they are
	// in between, so that they need not be sent again.
	unitsPerChart = 25
	// nameFrom and tookFrom are from which width on a bar has room for its name, and for its
	// duration.
	nameFrom, tookFrom = percent(5), percent(9)
	// fewFinished is how many lanes that have finished are not folded.
	fewFinished = 10
	// late is from where on a text stands before its line, lateMark the same for a short one.
	late, lateMark = percent(75), percent(92)
)

// percent of the chart's width.
type percent float64

// String is for attributes. A tenth of a percent is about one pixel.
func (p percent) String() string {
	const tenths = 10
	return strconv.FormatFloat(math.Round(float64(p)*tenths)/tenths, 'f', -1, 64) + "%"
}

// window is what of time is drawn.
type window struct{ From, To, Now time.Time }

func (w window) at(t time.Time) percent {
	const all = 100
	return percent(min(max(float64(t.Sub(w.From))/float64(w.To.Sub(w.From)), 0), 1) * all)
}

// windowOf is the window for lanes: as far back as they began, or as long as is wanted, and as
// far ahead as they expect.
func windowOf(lanes []lane, back time.Duration, now time.Time) window {
	from, ahead := now.Add(-time.Minute), now
	for _, l := range lanes {
		if l.began.Before(from) {
			from = l.began
		}
		for _, t := range l.Turns {
			for _, at := range []time.Time{t.Expected, t.Deadline} {
				if at.After(ahead) {
					ahead = at
				}
			}
		}
	}
	if wanted := now.Add(-back); back > 0 && wanted.After(from) {
		from = wanted
	}
	past := now.Sub(from)
	share := func(part float64) time.Time { return now.Add(time.Duration(float64(past) * part / (1 - part))) }
	to := ahead
	if least := share(minAhead); to.Before(least) {
		to = least
	}
	if most := share(maxAhead); to.After(most) {
		to = most
	}
	unit := roundStep(to.Sub(from), unitsPerChart)
	from, to = from.In(now.Location()), to.In(now.Location())
	if back > 0 {
		from = roundDown(from, unit)
	}
	return window{From: from, To: roundUp(to, unit), Now: now}
}

// mark is a time on the axis, or a line through all lanes.
type mark struct {
	X     percent
	Class string
	Text  string
	// Y of the text. Before says that it stands on the left of its line, Beyond that the line is
	// not within the window.
	Y              int
	Before, Beyond bool
}

// axisModel is the head of the chart.
type axisModel struct {
	Height int
	Marks  []mark
	Lines  []mark
}

// axisOf are the times of a window, and what the node waits for.
func axisOf(w window, lanes []lane) axisModel {
	span := w.To.Sub(w.From)
	step := roundStep(span, marks)
	var a axisModel
	for _, at := range roundTimes(w.From, w.To, marks) {
		a.Marks = append(a.Marks, mark{X: w.at(at), Class: "axis", Text: axisText(at, span, step), Y: baseline, Before: w.at(at) > lateMark})
	}
	var end, deadline time.Time
	for _, l := range lanes {
		for _, t := range l.Turns {
			if t.Open && t.Expected.After(w.Now) && t.Expected.After(end) {
				end = t.Expected
			}
			if t.Open && t.Deadline.After(w.Now) && (deadline.IsZero() || t.Deadline.Before(deadline)) {
				deadline = t.Deadline
			}
		}
	}
	clock := func(t time.Time) string { return axisText(t.In(w.Now.Location()), t.Sub(w.Now), time.Second) }
	line := func(at time.Time, class, words string) {
		m := mark{X: w.at(at), Class: class, Text: words, Y: (len(a.Lines)+1)*lineHeight + baseline, Beyond: at.After(w.To)}
		m.Before = m.X > late || m.Beyond
		a.Lines = append(a.Lines, m)
	}
	line(w.Now, "now", "now")
	if !end.IsZero() {
		line(end, "end", "expected end "+clock(end))
	}
	if !deadline.IsZero() {
		line(deadline, "deadline", "deadline "+clock(deadline))
	}
	a.Height = (len(a.Lines)+1)*lineHeight + 2
	return a
}

// barModel is a turn as a bar.
type barModel struct {
	X, Width    percent
	Class, Name string
	Title       string
	Hatched     bool
	// Took is how long it took; Inside says that it has room in the bar, else it stands at After.
	Took   string
	Inside bool
	After  percent
	// Expected is the part that is still to come, from ExpectedX on.
	ExpectedX, Expected percent
	ExpectedTitle       string
	// Deadline is where it has to be done, 0 if there is none ahead.
	Deadline      percent
	DeadlineTitle string
	Ticks         []percent
}

// laneRow is a lane as it is drawn.
type laneRow struct {
	ID, Href, Pod, Full string
	// Said are the turns in words, for who comes by keyboard.
	Said []string
	Bars []barModel
}

func (w window) row(l lane) laneRow {
	r := laneRow{ID: "row-" + l.ID, Href: podHref(l.Namespace, l.Pod), Pod: text.Clean(l.Pod), Full: text.Clean(l.Namespace + "/" + l.Pod)}
	for i, t := range l.Turns {
		title := t.title(w.Now)
		r.Said = append(r.Said, title)
		if t.To.Before(w.From) || t.From.After(w.To) {
			continue
		}
		b := w.bar(t)
		b.Title = title
		if !b.Inside && i < len(l.Turns)-1 {
			b.Took = "" // The next bar stands there.
		}
		r.Bars = append(r.Bars, b)
	}
	if len(l.Turns) == 0 {
		r.Said = []string{l.State}
	}
	return r
}

func (w window) bar(t turn) barModel {
	const least = percent(0.3) // Else it cannot be seen.
	b := barModel{X: w.at(t.From), Class: t.Class, Hatched: t.Class == classBudget, Took: duration.HumanDuration(t.To.Sub(t.From))}
	b.Width = max(w.at(t.To)-b.X, least)
	b.After, b.Inside = b.X+b.Width, b.Width >= tookFrom
	if b.Width >= nameFrom {
		b.Name = t.Interceptor
	}
	if t.Open && t.Expected.After(w.Now) {
		b.ExpectedX, b.Expected = b.After, max(w.at(t.Expected)-b.After, 0)
		b.ExpectedTitle = t.Interceptor + " expects to be done in " + duration.HumanDuration(t.Expected.Sub(w.Now))
		b.After += b.Expected
	}
	if t.Open && t.Deadline.After(w.Now) && !t.Deadline.After(w.To) {
		b.Deadline = w.at(t.Deadline)
		b.DeadlineTitle = t.Interceptor + " is cut off in " + duration.HumanDuration(t.Deadline.Sub(w.Now))
	}
	for _, tick := range t.Ticks {
		if !tick.Before(t.From) && !tick.Before(w.From) && !tick.After(w.Now) {
			b.Ticks = append(b.Ticks, w.at(tick))
		}
	}
	return b
}

// The ranges of the time line, by the parameter "range".
var ranges = []choice{{"", "All"}, {"1h", "Last hour"}, {"10m", "Last 10 minutes"}}

// backOf is how far back a range goes; 0 if that is as far as anything goes.
func backOf(value string) time.Duration {
	back, err := time.ParseDuration(value)
	if err != nil {
		return 0 // It is the first range.
	}
	return back
}

// within are the lanes that have anything in the window that goes so far back.
func within(lanes []lane, back time.Duration, now time.Time) []lane {
	if back == 0 {
		return lanes
	}
	var found []lane
	for _, l := range lanes {
		n := len(l.Turns)
		if l.rank != rankFinished || n > 0 && !l.Turns[n-1].To.Before(now.Add(-back)) {
			found = append(found, l)
		}
	}
	return found
}

// chartModel is what stands around the lanes.
type chartModel struct {
	Links []link
	Pager *pager
	// Left is how many lanes ended before the range.
	Left int
	// Empty is what is said if there are no lanes.
	Empty string
}

// laneGroup are the lanes of one state.
type laneGroup struct {
	ID, Title, Tone string
	Count           int
	Folded, Open    bool
}

// chartOf are the lanes of a page as a drawing. Each lane is sent by itself when it changes.
func chartOf(shown, all []lane, w window, m chartModel, open bool) live.Fragment {
	if len(shown) == 0 {
		return fragment("lanes", "lanes-empty", m)
	}
	axis := axisOf(w, all)
	f := live.Fragment{ID: "lanes", Before: rendered("lanes-begin", m), After: template.HTML("</div></div></section>"), Children: []live.Fragment{
		fragment("lanes-grid", "lanes-grid", axis), fragment("lanes-axis", "lanes-axis", axis),
	}}
	groups := []laneGroup{
		{ID: "lanes-blocked", Title: "Blocked", Tone: toneBad}, {ID: "lanes-working", Title: "In progress", Tone: toneBusy}, {ID: "lanes-finished", Title: "Finished", Tone: toneGood},
	}
	rows := make([][]live.Fragment, len(groups))
	for _, l := range all {
		groups[l.rank].Count++
	}
	for _, l := range shown {
		r := w.row(l)
		rows[l.rank] = append(rows[l.rank], fragment(r.ID, "lane-row", r))
	}
	for i, g := range groups {
		if len(rows[i]) == 0 {
			continue
		}
		g.Folded, g.Open = laneRank(i) == rankFinished && len(rows[i]) > fewFinished, open
		after := template.HTML("</div>")
		if g.Folded {
			after = "</details>"
		}
		f.Children = append(f.Children, live.Fragment{ID: g.ID, Before: rendered("lanes-group", g), Children: rows[i], After: after})
	}
	return f
}

// link is one of some links of which one is where the user is.
type link struct {
	Href, Text string
	Here       bool
}

// linksOf are links to each value of a parameter; the rest of the query stays, but for the
// parameters that are dropped.
func linksOf(query url.Values, parameter, value string, choices []choice, drop ...string) []link {
	var all []link
	for _, c := range choices {
		all = append(all, link{Href: with(query, parameter, c.Value, drop...), Text: c.Text, Here: c.Value == value})
	}
	return all
}

// with is the address of the same page with another value of a parameter, without it if it is
// empty, and without those that are dropped.
func with(query url.Values, parameter, value string, drop ...string) string {
	changed := url.Values{}
	for name, values := range query {
		changed[name] = values
	}
	for _, name := range append(drop, parameter) {
		changed.Del(name)
	}
	if value != "" {
		changed.Set(parameter, value)
	}
	return "?" + changed.Encode()
}
