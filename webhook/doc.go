// Package webhook is the admission side of Drawbridge.
//
// EvictionHandler answers the webhook for pods/eviction. Each call goes through decode,
// gather, decide, apply and respond: decide is a pure function of one Input and may
// request a live read first; only gather and apply use the API. Calls for pods without
// interceptors, and repeated denials, make no API request at all. Interceptors that
// have a Preflight are asked before a request is made; only the active interceptor's
// own account may evict past it.
//
// StatusHandler checks the rules on the status of an EvictionRequest that cannot be in
// the schema: times, which need a clock, and who may write for an interceptor, which
// its registration says.
//
// Renewer renews the leases of the callers, outside of their calls.
//
//   - register.go: the paths and handlers
//   - server.go, connections.go: the server and its connections
//   - authn.go: who may call
//   - bodylimit.go, body.go: how much is read
//   - review.go: reviews, decoded and answered
//   - undecodable.go: answers to those that are not decoded
//   - eviction.go: the handler of evictions
//   - call.go: one call of pods/eviction
//   - gather.go: the Input of a decision
//   - decide.go: the decision, from the rules in the next ones
//   - checks.go, checks_start.go, checks_guard.go, checks_replacement.go: its rules
//   - preflight.go: asks interceptors first
//   - apply.go, emit.go: writes and events of a decision
//   - singleflight.go: one attempt for calls with one key
//   - bypassed.go: evictions that bypassed their interceptors
//   - limit.go, stale.go: new requests by node; calls that come too late
//   - lease.go, lease_index.go, renewer.go: the leases of callers
//   - status.go, status_skip.go, status_writer.go: the handler of the status of requests
//   - poddelete.go: the handler of deletions by the scheduler
//   - probe.go: the handler of probes
package webhook
