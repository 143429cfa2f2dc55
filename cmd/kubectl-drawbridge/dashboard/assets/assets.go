// Package assets are the files that the browser loads: our own, and those of htmx.
package assets

import (
	"embed"
	"net/http"
)

//go:embed *.css *.js vendor/*.js
var files embed.FS

// Handler serves the files.
func Handler() http.Handler {
	return http.FileServerFS(files)
}

// Style is the text of the stylesheet, for pages that are saved as a file.
func Style() (string, error) {
	text, err := files.ReadFile("style.css")
	return string(text), err //nolint:wrapcheck // It names the file.
}
