// Package page renders the pages of the dashboard. What a page shows follows from a snapshot
// and the address; only the page of a pod asks the cluster more (Backend).
package page

import (
	"context"
	"errors"
	"net/url"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
)

// Request is what a page is asked for.
type Request struct {
	// Snapshot of the cluster.
	Snapshot *state.Snapshot
	// Values of the wildcards of the page's path, for example "node".
	Values map[string]string
	// Query of the address: "page", "filter" and so on.
	Query url.Values
	// ReadOnly: no action is offered.
	ReadOnly bool
	// Export: the page is saved as a file, so that it has no links to actions.
	Export bool
	// Backend asks the cluster.
	Backend Backend
}

// Backend is what a page may ask the cluster beyond the snapshot.
type Backend interface {
	// Why tells the story of a pod, as kubectl drawbridge why does. Answers may be some
	// seconds old.
	Why(ctx context.Context, namespace, pod string) (why.Story, error)
}

// Content is what a page shows.
type Content struct {
	// Title of the page, without the product's name.
	Title string
	// Section is the entry of the menu that it belongs to, one of the Sections.
	Section string
	// Fragments in their order. They are the main part of the page.
	Fragments []live.Fragment
}

// Page is one page.
type Page struct {
	// Pattern is that of http.ServeMux, without the method: "/nodes/{node}".
	Pattern string
	// Section is its entry in the menu; empty if it has none of its own.
	Section string
	// Render returns the content. An error is shown to the user in words; ErrNotFound has
	// the status 404.
	Render func(context.Context, Request) (Content, error)
}

// ErrNotFound says that there is nothing at an address.
var ErrNotFound = errors.New("not found")

// Sections of the menu, in their order.
const (
	SectionDrains       = "Drains"
	SectionInterceptors = "Interceptors"
	SectionBudgets      = "Budgets"
	SectionForecast     = "Forecast"
)
