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
package webhook
