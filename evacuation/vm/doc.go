// Package vm is the interceptor for platforms that move the workload of a pod: a
// virtual machine, a database. EvacuationPolicies describe a platform: CEL that finds
// the object behind a pod (the workload), patches that mark it for evacuation and
// remove the mark, and expressions that read the platform's progress.
//
// As everywhere, deciding is separate from reading and writing:
//
//	policy.go     an EvacuationPolicy, compiled
//	facts.go      what the expressions say of one pod and its workload
//	step.go       PURE. facts -> verdict, for the webhook and the interceptor alike
//	schedule.go   PURE. marked workloads and migrations -> which ones to create
//	kinds.go      informers of kinds that are known only at run time
//	kinds_objects.go their objects, read and written
//	store.go      all policies, on every replica
//	evacuate.go   the interceptor; preflight.go the webhook's question
//	dispatch.go   one controller for the interceptors of all policies
//	migrations.go the controller that creates migrations from a template
//	status.go     the conditions of the policies
package vm
