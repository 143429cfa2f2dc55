// Package live sends a browser what has changed on a page since it last looked, and no more.
package live

import "html/template"

// Fragment is one element of a page that can be replaced by itself. Its HTML is one element
// whose id is ID.
type Fragment struct {
	// ID is unique on its page.
	ID string
	// HTML is the whole element, if it has no Children.
	HTML template.HTML
	// Before and After are what stands around the Children: the element's beginning, with its
	// id, and its end.
	Before, After template.HTML
	// Children can be replaced by themselves as long as they are the same ones in the same
	// order. Else the whole element is replaced.
	Children []Fragment
}
