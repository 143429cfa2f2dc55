// Package request moves EvictionRequests on. It holds the controller that gives
// the interceptors their turns, the imperative evictor, which is a client of the
// API like any other interceptor, and the controller of the leases of legacy
// requesters.
//
// Each of them gathers what it needs, lets a pure function decide and applies the
// decision. The sequence itself is decided in evacuation/process; the adapter in
// this package translates between the two.
package request
