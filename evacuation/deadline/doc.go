// Package deadline learns from what stands in the API until when a pod has to have ended,
// whoever asks for its eviction: callers of pods/eviction cannot say how long they wait.
// Each source is a pure function of package translate; this package finds the objects. It
// also knows which nodes are lost, which is learnt from the same objects.
package deadline
