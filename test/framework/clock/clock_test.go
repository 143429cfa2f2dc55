package clock_test

import (
	"sync"
	"testing"
	"time"

	utilclock "k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
)

// soon is how long a test waits for what must happen; it is never used up
// unless something is broken.
const soon = time.Minute

func fires(t *testing.T, what string, ch <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-ch:
		return at
	case <-time.After(soon):
		t.Fatalf("%s did not fire", what)
		return time.Time{}
	}
}

func silent(t *testing.T, what string, ch <-chan time.Time) {
	t.Helper()
	select {
	case <-ch:
		t.Fatalf("%s fired", what)
	default:
	}
}

func TestTimers(t *testing.T) {
	cases := map[string]func(t *testing.T, c *clock.Clock){
		"a timer fires when the clock is carried past it": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tm := c.NewTimer(time.Hour)
			c.Advance(59 * time.Minute)
			silent(t, "the timer", tm.C())
			c.Advance(time.Minute)
			fires(t, "the timer", tm.C())
		},
		"a timer fires by itself as real time flows": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			c.Advance(time.Hour)
			fires(t, "the timer", c.After(5*time.Millisecond))
		},
		"a timer set in the past fires at once": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			fires(t, "the timer", c.After(-time.Second))
		},
		"what remains after an advance flows on": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tm := c.NewTimer(time.Hour + 20*time.Millisecond)
			c.Advance(time.Hour)
			fires(t, "the timer", tm.C())
		},
		"a stopped timer stays silent": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tm := c.NewTimer(time.Minute)
			if !tm.Stop() {
				t.Error("Stop of a waiting timer returned false")
			}
			c.Advance(time.Hour)
			silent(t, "the stopped timer", tm.C())
			if tm.Stop() {
				t.Error("the second Stop returned true")
			}
		},
		"a reset timer waits for its new instant": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tm := c.NewTimer(time.Minute)
			c.Advance(time.Minute)
			// The value of the first round was not read and must not be mistaken
			// for the second.
			if tm.Reset(time.Hour) {
				t.Error("Reset of a fired timer returned true")
			}
			silent(t, "the reset timer", tm.C())
			c.Advance(time.Hour)
			fires(t, "the reset timer", tm.C())
		},
		"a ticker ticks again, once per advance": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tk := c.NewTicker(time.Minute)
			defer tk.Stop()
			c.Advance(10 * time.Minute)
			fires(t, "the ticker", tk.C())
			silent(t, "the ticker", tk.C())
			c.Advance(time.Minute)
			fires(t, "the ticker", tk.C())
			tk.Stop()
			c.Advance(time.Hour)
			silent(t, "the stopped ticker", tk.C())
		},
		"a delayed function runs, or is stopped": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			ran := make(chan time.Time, 2)
			c.AfterFunc(time.Minute, func() { ran <- c.Now() })
			stopped := c.AfterFunc(time.Minute, func() { t.Error("a stopped function ran") })
			if !stopped.Stop() {
				t.Error("Stop of a waiting function returned false")
			}
			c.Advance(time.Minute)
			fires(t, "the function", ran)
			if got := c.Waiting(); got != 0 {
				t.Errorf("%d still wait", got)
			}
		},
		"a clock set back fires nothing early": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			tm := c.NewTimer(time.Minute)
			c.Advance(-time.Hour)
			c.Advance(time.Hour)
			silent(t, "the timer", tm.C())
			c.Advance(time.Minute)
			fires(t, "the timer", tm.C())
		},
		"timers fire in their order": func(t *testing.T, c *clock.Clock) {
			t.Helper()
			var ch [3]<-chan time.Time
			ch[0], ch[2], ch[1] = c.After(time.Second), c.After(3*time.Hour), c.After(2*time.Hour)
			c.Advance(2 * time.Hour)
			fires(t, "the first", ch[0])
			fires(t, "the second", ch[1])
			silent(t, "the third", ch[2])
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, clock.New())
		})
	}
}

func TestAdvanceTo(t *testing.T) {
	c := clock.New()
	at := c.Now().Add(time.Hour)
	c.AdvanceTo(at)
	if now := c.Now(); now.Before(at) || now.Sub(at) > soon {
		t.Errorf("the clock shows %v, want about %v", now, at)
	}
	before := c.Offset()
	c.AdvanceTo(at.Add(-time.Minute))
	if c.Offset() != before {
		t.Error("AdvanceTo went backwards")
	}
}

func TestConcurrentUse(t *testing.T) {
	c := clock.New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var timers []utilclock.Timer
			for i := range 200 {
				tm := c.NewTimer(time.Duration(i) * time.Minute)
				timers = append(timers, tm)
				if i%3 == 0 {
					tm.Reset(time.Minute)
				}
				if i%5 == 0 {
					tm.Stop()
				}
				c.Advance(time.Second)
				c.Since(c.Now())
			}
			for _, tm := range timers {
				tm.Stop()
			}
		})
	}
	wg.Wait()
	if got := c.Waiting(); got != 0 {
		t.Errorf("%d still wait after all were stopped", got)
	}
	if got, want := c.Offset(), 1600*time.Second; got != want {
		t.Errorf("offset %v, want %v", got, want)
	}
}
