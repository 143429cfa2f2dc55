//go:build unix && chaosbugrecords

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// A manager that deletes pods in spite of their budget without a record of that: it believes
// that it writes one.
func init() {
	bugs = append(bugs, func(_ *app.Options, conf *rest.Config) {
		conf.Wrap(func(next http.RoundTripper) http.RoundTripper { return forgetful{next} })
	})
}

type forgetful struct{ next http.RoundTripper }

func (f forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/evictionbudgets/") || r.Body == nil {
		return f.next.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read an EvictionBudget: %w", err)
	}
	if err := r.Body.Close(); err != nil {
		return nil, fmt.Errorf("read an EvictionBudget: %w", err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(sent, &object); err != nil {
		return nil, fmt.Errorf("read an EvictionBudget: %w", err)
	}
	grants, _, err := unstructured.NestedSlice(object, "status", "grants")
	if err != nil {
		return nil, fmt.Errorf("read an EvictionBudget: %w", err)
	}
	for _, grant := range grants {
		if grant, ok := grant.(map[string]any); ok {
			delete(grant, "disruptionBudget")
		}
	}
	if len(grants) > 0 {
		if err := unstructured.SetNestedSlice(object, grants, "status", "grants"); err != nil {
			return nil, fmt.Errorf("write an EvictionBudget: %w", err)
		}
	}
	changed, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write an EvictionBudget: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(changed)), int64(len(changed))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(changed)), nil }
	return f.next.RoundTrip(r)
}
