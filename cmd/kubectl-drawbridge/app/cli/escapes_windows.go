package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// obeysEscapes makes a console obey escape codes. Consoles before Windows 10 1511
// cannot, and print them instead.
func obeysEscapes(out *os.File) bool {
	handle := windows.Handle(out.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(handle, &mode); err != nil {
		return false // Not a console: we know of no terminal that would obey.
	}
	return mode&windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING != 0 ||
		windows.SetConsoleMode(handle, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
