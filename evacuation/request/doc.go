// Package request is the controller that activates the interceptors of a pod in order.
//
// It gathers what it needs, lets a pure function decide and applies the decision. The
// sequence itself is decided in evacuation/process; the adapter in this package
// translates between the two.
//
//   - reconciler.go, setup.go: the controller
//   - target.go, labels.go: the pod, and what is copied from it
//   - plan.go: who intercepts it
//   - adapter.go: to evacuation/process and back
//   - observed.go: when things were first seen
//   - account.go: how turns have ended, for the metrics
//   - announce.go: events
//   - forged.go: outcomes that others wrote
//   - unchecked.go: completions that no webhook has checked
//   - held.go: deleted requests that finalizers hold
package request
