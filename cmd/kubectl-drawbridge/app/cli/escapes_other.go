//go:build !windows

package cli

import "os"

// obeysEscapes is true of every terminal: one that does not says TERM=dumb.
func obeysEscapes(*os.File) bool { return true }
