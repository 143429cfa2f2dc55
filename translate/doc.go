// Package translate converts between the vocabulary of others and ours: who calls
// pods/eviction becomes a requester with a lease, a node becomes its drain markers, a
// pod's annotation becomes a list of interceptors, and a verdict becomes an answer that
// existing callers understand.
//
// It is pure. Nothing here reads a clock, an API or a file.
package translate
