//go:build !windows

package cli

import "os"

// obeysEscapes is true for every terminal: those that do not obey set TERM=dumb.
func obeysEscapes(*os.File) bool { return true }
