// Package refused is what the API server refuses for good: a write of the manager that the
// next attempt does not help, because a quota, a policy, a webhook or a missing right is in
// the way. It has one notion of that for all of the manager:
//
//   - cause.go: from an error of the API server the Cause, a closed set, and the server's
//     words. Pure.
//   - writes.go: the writes of the manager by name, also a closed set: the rows of the table
//     in docs/operations/observability.md. Pure.
//   - client.go: the manager's client. Each of its writes goes through a Tracker.
//   - tracker.go: pauses a refused write, counts it, and records events on the object that
//     the write is for (About), as a rule a pod.
//
// A refused write is tried again after 5 s, then after twice as long each time, up to five
// minutes, forever. Until then the client answers with the last refusal and sends nothing,
// however often somebody asks. Memory is only a hint: after a restart the first attempt
// finds out again.
package refused
