// Package garbage decides how much garbage may pile up before it is collected. Go's default
// is as much as there is in use. That is too little for the manager of a small cluster, whose
// few megabytes were collected so often that it was a quarter of its work, and too much for
// one whose cache of pods has hundreds of megabytes.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// usual is how many bytes of garbage are collected at once, if the bounds allow it.
	usual = 48 << 20
	// least and most are the bounds, in percent of what is in use.
	least, most = 50, 400
	// liveMetric is what was in use after the last collection, in bytes.
	liveMetric = "/gc/heap/live:bytes"
)

// Percent is GOGC for a heap of which so many bytes are in use: 50 to 400.
func Percent(live uint64) int {
	if live == 0 {
		return most
	}
	return int(min(max(usual*100/live, least), most))
}

// Pace sets GOGC after each collection, for the whole process and for as long as it lives.
// Whoever has set the environment variable GOGC knows better: then it does nothing.
func Pace() {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	(&pacer{set: debug.SetGCPercent}).arm()
}

// pacer sets what it has not set before: to set it stops the program for a moment.
type pacer struct {
	set  func(percent int) int
	last int
}

// arm waits for the next collection, which finds that nobody uses the mark.
func (p *pacer) arm() {
	mark := new([16]byte)
	runtime.SetFinalizer(mark, func(*[16]byte) {
		p.adjust()
		p.arm()
	})
}

func (p *pacer) adjust() {
	sample := []metrics.Sample{{Name: liveMetric}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return // Of a Go that no longer has it.
	}
	if percent := Percent(sample[0].Value.Uint64()); percent != p.last {
		p.last = percent
		p.set(percent)
	}
}
