//go:build unix && chaosbugwaves

package main

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// A manager that asks for all pods of a node at the same time: it cannot read spec.waves of a
// NodeMaintenance.
func init() {
	bugs = append(bugs, func(_ *app.Options, conf *rest.Config) {
		conf.Wrap(func(next http.RoundTripper) http.RoundTripper { return misreading{next} })
	})
}

type misreading struct{ next http.RoundTripper }

func (m misreading) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/nodemaintenances") {
		response.Body = &misreader{ReadCloser: response.Body}
	}
	return response, err
}

// misread is the beginning of a field's name, whose last letter is read as another one.
const misread = `"waves`

// misreader changes it in a list as in a watch, however that is cut into pieces.
type misreader struct {
	io.ReadCloser
	// seen is how many bytes of it came last.
	seen int
}

func (m *misreader) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for i, b := range p[:n] {
		switch {
		case b == misread[m.seen]:
			m.seen++
		case b == misread[0]:
			m.seen = 1
		default:
			m.seen = 0
		}
		if m.seen == len(misread) {
			p[i], m.seen = '_', 0
		}
	}
	return n, err
}
