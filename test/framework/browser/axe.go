package browser

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// axeVersion is the release of axe-core that judges pages (MPL-2.0, from its npm
	// package; it is no part of Drawbridge).
	axeVersion = "4.14.1"
	// axeSHA256 is that of axe.min.js in it.
	axeSHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axePath is where `make browser` puts axe-core: in the checkout, because results of tests
// are cached, and the go command notices only there that a file has come.
func axePath() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin", "axe-core-"+axeVersion, "axe.min.js"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the checkout: no folder above has a go.mod")
		}
		dir = parent
	}
}

// axeScript is the source of axe-core.
func axeScript() (string, error) {
	path, err := axePath()
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("there is no axe-core")
	}
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	return string(script), checkAxe(script)
}

func checkAxe(script []byte) error {
	sum := sha256.Sum256(script)
	if got := hex.EncodeToString(sum[:]); got != axeSHA256 {
		return fmt.Errorf("axe-core is not what it was: SHA-256 %s, want %s", got, axeSHA256)
	}
	return nil
}

// Violation is a rule of accessibility that the page breaks.
type Violation struct {
	// ID of axe-core's rule, its Impact and what to do.
	ID, Impact, Help string
	// Nodes that break it, as selectors, with what is wrong.
	Nodes []string
}

// String is for the message of a test.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s\n    %s", v.Impact, v.ID, v.Help, strings.Join(v.Nodes, "\n    "))
}

// grave impacts make a page unusable for somebody.
var grave = []string{"serious", "critical"}

// Accessible fails the test for each serious or critical violation of accessibility of the
// page as it is now, and returns all of them.
func (t *Tab) Accessible(what string) []Violation {
	t.tb.Helper()
	script, err := axeScript()
	if err != nil {
		t.tb.Fatal(err)
	}
	Eval[bool](t, script+"; true")
	// preload would fetch the style sheets again, which the Content-Security-Policy need not
	// allow.
	violations := Eval[[]Violation](t, `axe.run(document, {resultTypes: ['violations'], preload: false}).then(r => r.violations.map(v => ({
		ID: v.id, Impact: v.impact, Help: v.help,
		Nodes: v.nodes.map(n => n.target.join(' ') + ': ' + (n.failureSummary || '').replace(/\s+/g, ' ')),
	})))`)
	for _, v := range violations {
		if slices.Contains(grave, v.Impact) {
			t.tb.Errorf("%s: %s", what, v)
		}
	}
	return violations
}
