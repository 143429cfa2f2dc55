// Package interceptor is the SDK for programs that act before a pod is evicted. It is
// light: it links neither the API server nor CEL.
//
//   - interceptor.go: what an author implements
//   - options.go, setup.go, predicate.go: a controller for it
//   - request.go: what both APIs say of a turn
//   - drawbridge.go: Drawbridge's API
//   - native.go, nativeapi.go, nativerun.go: Kubernetes' own, while it is served
//   - reconciler.go: one request
//   - step.go: the decision
//   - report.go: reports
//   - turnstate.go: what is known of a request
//   - running.go: calls that the end of a turn stops
//   - clock.go: the API server's clock
package interceptor
