package forecast

import (
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// begun is the wave that has begun last on a node: its position, 0 for none, and since when, from
// now.
type begun struct {
	wave  int
	since time.Duration
}

// findWaves compiles the waves, and finds out how far they are.
func (w *world) findWaves() {
	w.begun = make([]begun, len(w.drain))
	waves, err := translate.CompileWaves(w.in.Settings.Waves)
	if err != nil {
		w.leaveOut("the waves of the maintenance, which cannot be read: " + text.Clean(err.Error()))
		return
	}
	w.waves = waves
	for i, name := range w.drain {
		node := w.nodes[name]
		if node == nil {
			continue
		}
		last := translate.BegunWavesOf(node)[w.in.Settings.Maintenance]
		if position := waves.Position(last.Name); position > 0 {
			w.begun[i] = begun{position, last.Since.Sub(w.in.Now)}
		}
	}
}

// namespaceLabels are those that waves and orders select by, by namespace.
func (w *world) namespaceLabels() map[string]map[string]string {
	known := map[string]map[string]string{}
	for _, namespace := range w.in.Namespaces {
		known[namespace.Name] = namespace.Labels
	}
	if len(known) == 0 && w.waves.SeeNamespaces() {
		w.leaveOut("waves that select by the labels of namespaces, which are not known")
	}
	return known
}

// waveOf is the name of the pod's wave, empty if it goes before all.
func (w *world) waveOf(v *victim) string {
	if v.wave == 0 {
		return ""
	}
	return text.Clean(w.waves.Name(v.wave))
}

// countWaves counts the pods of the nodes by their waves.
func (r *run) countWaves() {
	r.left, r.begun, r.dueWaves = make([]int, len(r.drain)), slices.Clone(r.world.begun), make([]time.Duration, len(r.drain))
	r.inWaves = make([][]int32, len(r.drain))
	for node := range r.drain {
		r.inWaves[node], r.dueWaves[node] = make([]int32, len(r.waves)+1), idle
	}
	for i := range r.world.pods {
		v := &r.world.pods[i]
		r.left[v.node]++
		r.inWaves[v.node][v.wave]++
	}
}

// startPods begins with the pods of a node whose waves are after one and have begun. Those that
// leave, or were requested before, continue with the first.
func (r *run) startPods(node, after int, delay time.Duration) {
	first, end := r.podsOf(node)
	for i := first; i < end; i++ {
		switch v := &r.world.pods[i]; {
		case v.asked || v.leaving:
			if after < 0 {
				r.push(r.now, begins, i)
			}
		case v.wave <= after || v.wave > r.begun[node].wave:
		case len(v.turns) == 0:
			r.push(r.now+delay+r.wait, begins, i)
		default:
			r.push(r.now+delay, begins, i)
		}
	}
}

// order begins the next wave of a node if it is time for that, by the manager's own rule.
func (r *run) order(node int) {
	for {
		last := r.begun[node]
		next, _, until := translate.NextWave(r.in.Settings.Waves, last.wave, r.in.Now.Add(last.since), r.inWaves[node], r.in.Now.Add(r.now))
		if at := until.Sub(r.in.Now); !until.IsZero() && r.dueWaves[node] != at {
			r.dueWaves[node] = at
			r.push(at, ordered, node)
		}
		if next == 0 {
			return
		}
		r.begun[node] = begun{next, r.now}
		r.startPods(node, last.wave, waveDelay)
	}
}
