package browser

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

const (
	// patience is how long a tab waits for what must happen. The manager and the control
	// plane share the machine with the browser.
	patience = waiting.Patience

	defaultWidth, defaultHeight = 1200, 800
	// Narrow is the width that every page must be usable at.
	Narrow = 400
	// Wide is that of a desktop.
	Wide = defaultWidth
)

// Tab is one tab of a test. Its methods end the test when they fail; they are for one
// goroutine.
type Tab struct {
	tb  testing.TB
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it.

	mu       sync.Mutex
	problems []string
	expected []*regexp.Regexp
	messages []Message
}

// Message is one that a stream of server-sent events brought.
type Message struct {
	// At is when the browser had it.
	At time.Time
	// Bytes of its data.
	Bytes int
}

// Messages are those of all streams so far.
func (t *Tab) Messages() []Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.messages)
}

// received keeps a message.
func (t *Tab) received(e *network.EventEventSourceMessageReceived) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = append(t.messages, Message{At: time.Now(), Bytes: len(e.Data)})
}

// Tab opens a tab with cookies and storage of its own. It is closed at the end of the test,
// which fails if the page has complained about anything.
func (b *Browser) Tab(tb testing.TB) *Tab {
	tb.Helper()
	return open(b.ctx, tb, chromedp.WithNewBrowserContext())
}

// Beside opens another tab, which shares cookies with this one.
func (t *Tab) Beside() *Tab {
	t.tb.Helper()
	return open(t.ctx, t.tb)
}

func open(parent context.Context, tb testing.TB, options ...chromedp.ContextOption) *Tab {
	tb.Helper()
	t := &Tab{tb: tb}
	ctx, cancel := chromedp.NewContext(parent, append(options, chromedp.WithListener(t.listen))...)
	t.ctx = ctx
	tb.Cleanup(func() {
		cancel()
		for _, problem := range t.Problems() {
			tb.Errorf("the page complains: %s", problem)
		}
	})
	t.do(chromedp.EmulateViewport(defaultWidth, defaultHeight))
	return t
}

// listen keeps what goes wrong on the page.
func (t *Tab) listen(event any) {
	var problem string
	switch e := event.(type) {
	case runtime.EventConsoleAPICalled:
		problem = consoleProblem(&e)
	case *runtime.EventConsoleAPICalled:
		problem = consoleProblem(e)
	case runtime.EventExceptionThrown:
		problem = exceptionProblem(&e)
	case *runtime.EventExceptionThrown:
		problem = exceptionProblem(e)
	case log.EventEntryAdded:
		problem = entryProblem(e.Entry)
	case *log.EventEntryAdded:
		problem = entryProblem(e.Entry)
	case network.EventEventSourceMessageReceived:
		t.received(&e)
	case *network.EventEventSourceMessageReceived:
		t.received(e)
	}
	if problem == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, problem)
}

func consoleProblem(e *runtime.EventConsoleAPICalled) string {
	switch e.Type {
	case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
	default:
		return ""
	}
	words := make([]string, len(e.Args))
	for i, arg := range e.Args {
		words[i] = strings.TrimSpace(string(arg.Value) + " " + arg.Description)
	}
	return fmt.Sprintf("console %s: %s", e.Type, strings.Join(words, " "))
}

func exceptionProblem(e *runtime.EventExceptionThrown) string {
	text := "exception: " + e.ExceptionDetails.Text
	if e.ExceptionDetails.Exception != nil {
		text += " " + e.ExceptionDetails.Exception.Description
	}
	return text
}

// entryProblem is about what the browser itself says of the page: a file that was not
// found, a rule of the Content-Security-Policy that was violated, a deprecated function.
func entryProblem(e *log.Entry) string {
	if e == nil || (e.Level != log.EntryLevelError && e.Level != log.EntryLevelWarning) {
		return ""
	}
	return fmt.Sprintf("%s %s: %s %s", e.Source, e.Level, e.Text, e.URL)
}

// Expect forgives the problems that match, for example that the server is gone.
func (t *Tab) Expect(pattern string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = append(t.expected, regexp.MustCompile(pattern))
}

// Problems are those which nobody expected, in their order.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, problem := range t.problems {
		forgiven := false
		for _, pattern := range t.expected {
			forgiven = forgiven || pattern.MatchString(problem)
		}
		if !forgiven {
			all = append(all, problem)
		}
	}
	return all
}

// All are the problems, also those which were expected.
func (t *Tab) All() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.problems)
}

// do runs actions within the patience.
func (t *Tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	// The first action binds the life of the tab to its context, so that one has no limit.
	if err := chromedp.Do(t.ctx); err != nil {
		t.tb.Fatalf("open a tab: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}

// Open goes to an address and waits until it is loaded.
func (t *Tab) Open(url string) {
	t.tb.Helper()
	t.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		none, err := chromedp.Navigate(url)(ctx, target)
		// The server has refused with nothing to show. That is a problem of the page, which a
		// test may expect, and no failure of the browser.
		if load := (*chromedp.LoadError)(nil); errors.As(err, &load) && load.ErrorText == "net::ERR_HTTP_RESPONSE_CODE_FAILURE" {
			err = nil
		}
		return none, err
	})
}

// Address is that of the page.
func (t *Tab) Address() string {
	t.tb.Helper()
	return Eval[string](t, "location.href")
}

// replaced is what the browser says of an element that the page has replaced since it was found.
// A live page does that at any time.
var replaced = regexp.MustCompile("Could not find node with given id|Node is detached from document|does not have a layout object")

// touch does something with an element that does nothing if the page has just replaced it. Then
// it takes the new one.
func (t *Tab) touch(what string, step chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	err := waiting.For(t.ctx, what, func(ctx context.Context) error {
		err := chromedp.Do(ctx, step)
		if err != nil && !errors.Is(err, errNoClick) && !replaced.MatchString(err.Error()) {
			err = waiting.InVain(err)
		}
		return err
	})
	if err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}

// Follow clicks, and waits until another page has been loaded.
func (t *Tab) Follow(selector string) {
	t.tb.Helper()
	t.leave(func() { t.Click(selector) })
}

// FollowKey presses a key, and waits until another page has been loaded.
func (t *Tab) FollowKey(key string) {
	t.tb.Helper()
	t.leave(func() { t.Key(key) })
}

// leave does what leads to another page.
func (t *Tab) leave(how func()) {
	t.tb.Helper()
	Eval[bool](t, "window.drawbridgeOld = true")
	how()
	t.Until("another page to be loaded", "!window.drawbridgeOld && document.readyState === 'complete'")
}

// Type writes into a field.
func (t *Tab) Type(selector, text string) {
	t.tb.Helper()
	t.touch("text in "+selector, chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// Keys for Key.
const (
	KeyTab   = kb.Tab
	KeyEnter = kb.Enter
	KeySpace = " "
	KeyDown  = kb.ArrowDown
)

// Key presses a key.
func (t *Tab) Key(key string) {
	t.tb.Helper()
	t.do(chromedp.KeyEvent(key))
}

// TabTo presses the Tab key until the element has the focus, as people do who use no mouse;
// at most limit times. It must be visible that it has the focus.
func (t *Tab) TabTo(selector string, limit int) {
	t.tb.Helper()
	var seen []string
	for range limit {
		t.Key(KeyTab)
		if Eval[bool](t, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			if !Eval[bool](t, "document.activeElement.matches(':focus-visible') && (s => s.outlineStyle !== 'none' || s.boxShadow !== 'none')(getComputedStyle(document.activeElement))") {
				t.tb.Errorf("nobody sees that %s has the focus", selector)
			}
			return
		}
		seen = append(seen, Eval[string](t, "document.activeElement.outerHTML.slice(0, 80)"))
	}
	t.tb.Fatalf("the Tab key does not lead to %s within %d times, but to:\n%s", selector, limit, strings.Join(seen, "\n"))
}

// Visible waits until an element is there and has a size.
func (t *Tab) Visible(selector string) {
	t.tb.Helper()
	t.Until(selector+" to be visible", fmt.Sprintf("(e => e && e.getClientRects().length > 0)(document.querySelector(%q))", selector))
}

// Gone waits until no such element is visible.
func (t *Tab) Gone(selector string) {
	t.tb.Helper()
	t.Until(selector+" to be gone", fmt.Sprintf("![...document.querySelectorAll(%q)].some(e => e.getClientRects().length > 0)", selector))
}

// Shows waits until the visible text of an element contains the words.
func (t *Tab) Shows(selector, words string) {
	t.tb.Helper()
	t.Until(fmt.Sprintf("%s to show %q", selector, words),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.replace(/\\s+/g, ' ').includes(%q))", selector, words))
}

// Text is the visible text of the first such element.
func (t *Tab) Text(selector string) string {
	t.tb.Helper()
	return Eval[string](t, fmt.Sprintf("(e => e ? e.innerText : '')(document.querySelector(%q))", selector))
}

// Until waits until an expression is true.
func (t *Tab) Until(what, expression string) {
	t.tb.Helper()
	err := waiting.For(t.ctx, what, func(ctx context.Context) error {
		// While a page is replaced by the next, nothing can be asked.
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && !ok {
			err = errors.New("it is not so")
		}
		return err
	})
	if err != nil {
		t.tb.Fatalf("%v; the page at %s shows:\n%s\nproblems: %q", err, t.Address(), t.Text("body"), t.Problems())
	}
}

// Size sets the size of the page's window.
func (t *Tab) Size(width, height int64) {
	t.tb.Helper()
	t.do(chromedp.EmulateViewport(width, height))
}

// Scheme sets the preferred colours, "light" or "dark", and switches motion off.
func (t *Tab) Scheme(scheme string) {
	t.tb.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.tb.Fatalf("set the colours: %v", err)
	}
}

// Eval is the value of an expression on the page; promises are waited for.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.tb.Fatalf("evaluate %.80s: %v", expression, err)
	}
	return value
}
