//go:build unix

package dashboard

import "testing"

// Every page of a cluster in which a lot is going on: without an error of the browser,
// without a serious violation of accessibility, narrow and wide, light and dark. It also
// takes the pictures.
func TestEveryPage(t *testing.T) {
	needBrowser(t)
	s := tell(t)
	pictureTerminal(t, s.terminal, "kubectl drawbridge drain worker-a1 --force --reason='kernel update'", "terminal-drain")
	t.Log(s.terminal.drawn())
}
