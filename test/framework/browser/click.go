package browser

import (
	"context"
	"errors"
	"fmt"

	"github.com/chromedp/chromedp"
)

const (
	// awaitClick notes whether a click arrives at the element of a selector. One that meets
	// something else, which has come to its place meanwhile, does nothing.
	awaitClick = `(selector => {
		const click = window.drawbridgeClick = {arrived: false};
		click.listener = event => {
			if (click.arrived) return;
			if (event.target instanceof Element && event.target.closest(selector)) { click.arrived = true; return; }
			event.preventDefault();
			event.stopImmediatePropagation();
		};
		addEventListener('click', click.listener, true);
		return true;
	})(%q)`
	// clickArrived is true also on the page to which the click has led.
	clickArrived = `(click => {
		if (!click) return true;
		removeEventListener('click', click.listener, true);
		delete window.drawbridgeClick;
		return click.arrived;
	})(window.drawbridgeClick)`
)

// errNoClick says that the button was pressed and released, and the element got no click.
var errNoClick = errors.New("the click has not arrived")

// Click clicks on the middle of the element, when it is visible. A live page may replace it
// between the press of the button and its release, and there is no click then: it is done again.
func (t *Tab) Click(selector string) {
	t.tb.Helper()
	t.Visible(selector)
	t.touch("a click on "+selector, func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		if _, err := chromedp.Evaluate[bool](fmt.Sprintf(awaitClick, selector))(ctx, target); err != nil {
			return none, err
		}
		_, err = chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible)(ctx, target)
		arrived, asked := chromedp.Evaluate[bool](clickArrived)(ctx, target)
		switch {
		case err != nil:
			return none, err
		case asked == nil && !arrived:
			return none, errNoClick
		default:
			// What cannot be asked is on its way to the next page: the click has led there.
			return none, ctx.Err()
		}
	})
}
