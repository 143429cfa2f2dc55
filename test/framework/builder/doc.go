// Package builder makes Kubernetes objects for tests, so that a test states only
// what matters to it:
//
//	pod := builder.Pod("shop", "web-1").Node("node-1").Interceptors("a.example.com").Obj()
//
// A wrapper embeds the real type; its setters return the wrapper; Obj returns the
// object itself and Clone an independent copy of the wrapper. What is built can be
// created on a real API server, but a server ignores what it sets by itself: UID,
// status and deletion.
package builder
