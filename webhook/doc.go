// Package webhook is the admission side of Drawbridge.
//
// EvictionHandler stands before pods/eviction. Each call goes through decode,
// gather, decide, apply and respond: decide is one pure function of one Input
// and may ask for a live look before it commits itself; only gather and apply
// touch the API. A call about a pod nobody intercepts, and a denial that repeats
// itself, make no API request at all.
//
// StatusHandler checks the rules on times in the status of an EvictionRequest,
// which need a clock and cannot stand in the schema.
//
// Renewer keeps the leases of those callers alive, off the path of their calls.
package webhook
