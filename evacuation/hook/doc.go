// Package hook runs EvacuationHooks: interceptors that are a page of YAML. Each hook acts
// under a name of its own. Before anything is begun for a pod, it is recorded in the
// hook's status, so that it is done once whoever dies when.
//
//   - setup.go, runner.go: the controllers, one for each hook
//   - interceptor.go, cancel.go: the turn of a hook, and its undo
//   - native.go: turns in Kubernetes' own API
//   - step.go: what is next for a run
//   - attempt.go: one attempt
//   - compiled.go: one generation of a hook
//   - runs.go: runs, in the status of hooks
//   - limiter.go: how many attempts run at a time
//   - inflight.go: commands and requests that this process runs
//   - job.go, wait.go: Jobs and conditions
//   - retry.go: attempts that somebody asks for
//   - render.go: what a hook would do
//   - hookstest.go: requests of kubectl drawbridge hooks test
//   - status.go: the conditions of hooks
package hook
