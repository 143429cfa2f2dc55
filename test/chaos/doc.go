// Package chaos drains nodes while everything around breaks, and says whether
// Drawbridge has kept its promises.
//
// A run is a plan, carried out: which applications there are, how their interceptors
// behave, who drains, and what goes wrong when. The plan is a pure function of a seed
// ([MakePlan]), so a seed gives the same run again as far as real time allows. An
// observer of its own writes down every state of pods and requests, the interceptors
// and native responders keep a ledger of what they really did, and the API server logs
// every eviction and deletion. From these a pure function ([Check]) finds broken promises; nothing the product says of
// itself counts.
//
// For a part of the seeds the control plane serves lifecycle.k8s.io. Then there are native
// requesters and responders as well (plan_native.go, native_requesters.go and
// native_responders.go), judged by check_native.go for each Eviction, and by
// check_native_together.go for all that concerns a pod at a time.
//
// Singletons behind a budget that can never let them go are asked for before the faults begin
// (plan_singletons.go and singletons.go), and what the managers delete is judged by
// check_singletons.go; check_waves.go judges the order in which maintenances ask for pods.
//
// The command test/chaos/cmd/chaos does many runs (`make chaos`), the tests of this
// package a few. docs/chaos.md says what came of it.
package chaos
