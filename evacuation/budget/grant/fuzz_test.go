package grant

import (
	"strings"
	"testing"
	"time"
)

// A schedule is whatever somebody wrote into a budget. It is refused in one line, or opens.
func FuzzParseWindow(f *testing.F) {
	for _, schedule := range []string{
		"", "0 22 * * MON-FRI", "* * * * *", "*/5 22-2 1,15 JAN-MAR ?", "0 0 30 2 *", "0 0 29 2 MON", ", , , , ,", "@every 1s", "TZ=UTC 0 0 * * *",
		"0 0 L * *", "0 0 15W * *", "0 0 * * 5#3", "H 0 * * *", "-1 0 * * *", "1-0 0 * * *", "*/0 * * * *", "0/99999999999999999999 * * * *", "\x00 * * * *", "٠ ٠ * * *",
	} {
		f.Add(schedule, "Europe/Berlin", int64(60))
	}
	for _, zone := range []string{"", "UTC", "Local", "../../etc/passwd", "Australia/Lord_Howe", "Pacific/Apia", "\x00"} {
		f.Add("30 2 * * *", zone, int64(168*60))
	}
	f.Fuzz(func(t *testing.T, schedule, timeZone string, minutes int64) {
		if len(schedule) > 200 || len(timeZone) > 64 || minutes < 1 || minutes > 168*60 {
			return // The schema refuses it.
		}
		w, err := ParseWindow(schedule, timeZone, time.Duration(minutes)*time.Minute)
		if err != nil {
			if text := err.Error(); text == "" || strings.ContainsAny(text, "\n\r") {
				t.Errorf("%q in %q is refused with %q", schedule, timeZone, text)
			}
			return
		}
		o, open, err := Windows{w}.At(noon)
		if err != nil {
			t.Fatalf("%q in %q: %v", schedule, timeZone, err)
		}
		if open == noon.Before(o.Start) || !o.End.After(noon) || o.End.Sub(o.Start) < w.duration {
			t.Errorf("%q in %q is %t from %s to %s", schedule, timeZone, open, o.Start, o.End)
		}
	})
}
