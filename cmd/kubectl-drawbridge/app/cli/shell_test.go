package cli

import (
	"os/exec"
	"testing"
)

// A shell reads what was quoted as the same word again.
func TestShellWord(t *testing.T) {
	for _, word := range []string{"node-1", "a=b", "", "two words", "it's", `"$HOME"`, "`id`", "a;b", "a\nb", "*", "~", "{a,b}", "!x", "#x", "\\"} {
		said, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s. "+ShellWord(word)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if string(said) != word+"." {
			t.Errorf("%q as %s is read as %q", word, ShellWord(word), said)
		}
	}
}
