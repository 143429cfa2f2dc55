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

// Style is the text of the stylesheets, for pages that are saved as a file.
func Style() (string, error) {
	var all []byte
	for _, name := range []string{"style.css", "pages.css"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", err //nolint:wrapcheck // It names the file.
		}
		all = append(all, text...)
	}
	return string(all), nil
}
