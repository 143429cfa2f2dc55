// Package hookstest is kubectl drawbridge hooks test, which runs a hook for a pod without
// an eviction.
//
//   - command.go: the command and its flags
//   - facts.go: what is known of the hook and the pod, and why the test is refused
//   - plan.go: what would run, for --dry-run
//   - follow.go: makes the request and follows it to its end
//   - progress.go: what has been seen of the test, and how it ended
package hookstest
