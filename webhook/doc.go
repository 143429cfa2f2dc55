// Package webhook is the admission side of Drawbridge.
//
// EvictionHandler stands before pods/eviction. Each call goes through decode,
// gather, decide, apply and respond: decide is one pure function of one Input
// and may ask for a live look before it commits itself; only gather and apply
// touch the API. A call about a pod nobody intercepts, and a denial that repeats
// itself, make no API request at all. Interceptors that have a Preflight are
// asked before a request is made; only the active interceptor's own account may
// evict past it.
//
// StatusHandler checks the rules on the status of an EvictionRequest that cannot
// stand in the schema: times, which need a clock, and who may write for an
// interceptor, which stands in its registration.
//
// Renewer keeps the leases of those callers alive, off the path of their calls.
package webhook
