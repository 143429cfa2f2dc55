// Package translate turns the words of others into ours and back: who calls
// pods/eviction becomes a requester with a lease, a node becomes its drain
// markers, a pod's annotation becomes a list of interceptors, and a verdict
// becomes the answer a caller of today understands.
//
// It is pure. Nothing in here reads a clock, an API or a file.
package translate
