// Package browser drives a real Chromium without a window: tests open pages in it, press
// keys, and look at what a person would see. A tab keeps everything that the page has
// complained about, also violations of its Content-Security-Policy, and fails its test for
// it.
//
// `make browser` installs what is needed. Without it [Missing] says so, and tests skip.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"
)

// Env names another browser, by its path.
const Env = "DRAWBRIDGE_BROWSER"

// programs that do, as distributions call them.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"}

// Missing is why there are no tests in a browser on this machine, in one line; nil if there
// are.
func Missing() error {
	_, noBrowser := find()
	_, noAxe := axeScript()
	if err := errors.Join(noBrowser, noAxe); err == nil {
		return nil
	}
	switch {
	case noBrowser != nil && os.Getenv(Env) != "":
		return fmt.Errorf("the tests of the dashboard in a browser are left out: %w", noBrowser)
	case noBrowser != nil:
		return fmt.Errorf("the tests of the dashboard in a browser are left out: there is no Chromium; `make browser` installs it, or name one in %s", Env)
	default:
		return fmt.Errorf("the tests of the dashboard in a browser are left out: %w; `make browser` gets it", noAxe)
	}
}

// find returns the path of the browser.
func find() (string, error) {
	if name := os.Getenv(Env); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("find the browser of %s: %w", Env, err)
		}
		return path, nil
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium")
}

// Browser is one running Chromium.
type Browser struct {
	ctx    context.Context //nolint:containedctx // chromedp keeps the browser in it.
	cancel context.CancelFunc
}

// Start starts a browser with a profile of its own, which is empty and goes with it. Call
// Close in the end.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options(path)...)
	ctx, cancelBrowser := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, cancel: func() { cancelBrowser(); cancel() }}
	if err := chromedp.Do(ctx); err != nil {
		b.cancel()
		return nil, fmt.Errorf("start the browser %s: %w", path, err)
	}
	return b, nil
}

// ForTest starts a browser for one test, which is skipped where there is none.
func ForTest(tb testing.TB) *Browser {
	tb.Helper()
	if err := Missing(); err != nil {
		tb.Skip(err)
	}
	b, err := Start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// Close ends the browser.
func (b *Browser) Close() { b.cancel() }

// options of a browser that is alone, talks to nobody but this machine, and is the same on
// all of them.
func options(path string) []chromedp.ExecAllocatorOption {
	return append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// CI runs as root, where Chromium's sandbox refuses to start. The pages are our own.
		chromedp.NoSandbox,
		// There is no graphics card, and looking for one costs seconds.
		chromedp.DisableGPU,
		// Nothing of this is under test, and all of it would go to the network.
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		// A page that needs a CDN must fail here, also on machines that have the network.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"),
		chromedp.Flag("no-proxy-server", true),
		// Pictures do not depend on the screen, or on where a scroll bar is.
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("force-device-scale-factor", "1"),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.WindowSize(defaultWidth, defaultHeight),
		chromedp.Env("TZ=UTC", "LANG=C.UTF-8"),
	)
}
