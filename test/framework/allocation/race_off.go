//go:build !race

package allocation

// raceDetector reports whether this is a build with the race detector.
const raceDetector = false
