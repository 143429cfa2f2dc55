// Package vm is the interceptor for platforms that move the workload of a pod: a
// virtual machine, a database. EvacuationPolicies describe a platform: CEL that finds
// the object behind a pod (the workload), patches that mark it for evacuation and
// remove the mark, and expressions that read the platform's progress.
//
// As everywhere, deciding is separate from reading and writing:
//
//   - policy.go, expressions.go, patch.go, paths.go: an EvacuationPolicy, compiled
//   - allowedwrites.go: what a policy may write
//   - facts.go: what the expressions say of one pod and its workload
//   - step.go: PURE. facts -> verdict, for the webhook and the interceptor alike
//   - schedule.go: PURE. marked workloads and migrations -> which ones to create
//   - kinds.go, kinds_objects.go: informers of kinds that are known only at run time
//   - store.go: all policies, on every replica
//   - index.go: from workloads to pods and back
//   - failures.go: what went wrong, for the conditions
//   - evacuate.go, cancel.go, call.go: the interceptor
//   - preflight.go: the webhook's question
//   - verify.go: whether a patch was stored
//   - writelimiter.go: how often a workload is written
//   - dispatch.go: one controller for the interceptors of all policies
//   - migrations.go: the controller that creates migrations from a template
//   - status.go, statuslimiter.go: the conditions of the policies
//   - dryrun.go: dry runs of a policy's writes
//   - setup.go: the controllers
package vm
