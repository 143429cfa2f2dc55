//go:build unix

package dashboard

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

var (
	// redraw begins a new picture over the last one.
	redraw = regexp.MustCompile(`\x1b\[[0-9]+A`)
	// escape is any other code; those of colours are kept before.
	escape  = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
	colours = strings.NewReplacer("\x1b[32m", `<span class="good">`, "\x1b[31m", `<span class="bad">`, "\x1b[2m", `<span class="faint">`, "\x1b[0m", `</span>`)
)

// drawn is what a person sees last, as HTML.
func (s *screen) drawn() string {
	frames := redraw.Split(s.text(), -1)
	last := html.EscapeString(frames[len(frames)-1])
	return strings.ReplaceAll(escape.ReplaceAllString(colours.Replace(last), ""), "\r", "")
}

// pictureTerminal takes a picture of what is drawn on the terminal.
func pictureTerminal(t *testing.T, s *screen, command, name string) {
	t.Helper()
	page := `<!doctype html><html lang="en"><title>terminal</title><style>
		body { background: #11151c; color: #d8dee9; margin: 24px }
		pre { font: 14px/1.4 "DejaVu Sans Mono", monospace; margin: 0 }
		.good { color: #8fcf7f } .bad { color: #ff7b72 } .faint { color: #8b949e } .prompt { color: #79c0ff }
		</style><pre><span class="prompt">$</span> ` + html.EscapeString(command) + "\n" + s.drawn() + `</pre></html>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page) // The browser has gone.
	}))
	t.Cleanup(server.Close)
	tab := newTab(t)
	tab.Expect("favicon")
	tab.Size(724, 100)
	tab.Open(server.URL)
	picture(tab, name)
}
