// Package forecast simulates the drain of nodes on a copy of what is known of the cluster:
// when it would be done, what would block it for ever, and whether the pods fit elsewhere.
// Of is pure; gather.go reads what it needs. It decides nothing.
package forecast

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Input is everything that a forecast depends on. Nothing of it is changed.
type Input struct {
	Now time.Time
	// Drain are the names of the nodes to drain.
	Drain []string
	// Settings of the drain.
	Settings Settings
	// Seed of the random numbers: the same input has the same forecast.
	Seed uint64
	// Runs of the simulation, DefaultRuns if 0. Large ones have fewer, see Forecast.Runs.
	Runs int

	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
	// Requests are the running ones and those that are kept.
	Requests []*v1alpha1.EvictionRequest
	// Evictions are those of Kubernetes' own API, if the manager looks at it.
	Evictions    []*lifecyclev1alpha1.Eviction
	Interceptors []*v1alpha1.EvictionInterceptor
	// Hooks and Budgets are those that the manager runs and enforces.
	Hooks   []*v1alpha1.EvacuationHook
	Budgets []*v1alpha1.EvictionBudget
	PDBs    []*policyv1.PodDisruptionBudget
	// Workloads are the owners of pods, by their UID; what is not known is guessed from
	// the pods.
	Workloads map[types.UID]Workload
	// Native: native responders of pods are interceptors.
	Native bool
	// System is Drawbridge's own namespace.
	System string
	// LeftOut is what could not be read, for people.
	LeftOut []string
}

// Settings are those of the NodeMaintenance and of the manager.
type Settings struct {
	// KeepUnmanaged and KeepEmptyDir: such pods are kept, and block the drain.
	KeepUnmanaged, KeepEmptyDir bool
	// MaxParallel is how many nodes are drained at a time; 0 is all.
	MaxParallel int
	// Wait is maintenance.evacuationWait; nil if it is not known.
	Wait *time.Duration
	// Waves of the maintenance of this name; without any, all pods of a node go at the same time.
	Waves       []v1alpha1.MaintenanceWave
	Maintenance string
}

// Workload is what is known of the controller of pods.
type Workload struct {
	// Replicas that it should have.
	Replicas int
	// Deployment is the UID of that of a ReplicaSet; empty if it has none.
	Deployment types.UID
	// MaxSurge of the Deployment in pods.
	MaxSurge int
}

// Verdict is what a forecast says in one word.
type Verdict string

// Verdicts.
const (
	// Done: the drain ends.
	Done Verdict = "Done"
	// Unknown: nothing blocks it, but how long it takes is not known.
	Unknown Verdict = "Unknown"
	// Blocked: it never ends unless somebody does something.
	Blocked Verdict = "Blocked"
)

// Forecast of a drain.
type Forecast struct {
	// Nodes are those to drain, by name.
	Nodes   []string `json:"nodes"`
	Verdict Verdict  `json:"verdict"`
	// Headline says it in a sentence.
	Headline string `json:"headline"`
	// P50 and P95 of how long the drain takes. Without a verdict Done they are lower
	// bounds, for the pods that do go.
	P50Seconds float64 `json:"p50Seconds"`
	P95Seconds float64 `json:"p95Seconds"`
	// Runs of the simulation.
	Runs     int       `json:"runs"`
	Blockers []Blocker `json:"blockers,omitempty"`
	// Unknowns are what has no history although the duration depends on it.
	Unknowns []string `json:"unknowns,omitempty"`
	// Pods in the order in which they would be gone, then those that stay.
	Pods []Pod `json:"pods"`
	// History of the interceptors that take part.
	History []History `json:"history,omitempty"`
	Fit     Fit       `json:"fit"`
	// LeftOut is what the forecast does not consider.
	LeftOut []string `json:"leftOut"`
}

// Blocker is a pod that never goes unless somebody does something.
type Blocker struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	// Who blocks it, for example "PodDisruptionBudget web".
	Who string `json:"who"`
	// Why, and what to do about it.
	Why string `json:"why"`
	Do  string `json:"do"`
}

// Pod is the fate of one.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// Wave of the maintenance that it goes in; empty if it goes before all.
	Wave string `json:"wave,omitempty"`
	// Stays: the drain leaves it where it is, and does not wait for it. Why it does.
	Stays string `json:"stays,omitempty"`
	// Blocked: it never goes.
	Blocked bool `json:"blocked,omitempty"`
	// Turns are those before its eviction, in their order.
	Turns []string `json:"turns,omitempty"`
	// Responders are those of Kubernetes' own API that have, or will have, their turn as
	// native.drawbridge.dev, in their order.
	Responders []string `json:"responders,omitempty"`
	// WaitsFor are the pods of its node (namespace/name) that leave before it, by spec.after of the
	// registrations of its interceptors, in its turn of order.drawbridge.dev.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// TimedOut are those of them that are still there when the timeout of spec.after is over, in at
	// least half of the runs: it goes without them.
	TimedOut []string `json:"timedOut,omitempty"`
	// Circle are those that would wait for it in turn, so that it does not wait for them.
	Circle []string `json:"circle,omitempty"`
	// StartSeconds and EndSeconds are when its eviction is requested, and when it is gone,
	// from now (p50). They are 0 if it stays, and EndSeconds is 0 if it is blocked.
	StartSeconds float64 `json:"startSeconds"`
	EndSeconds   float64 `json:"endSeconds"`
	// EndP95Seconds is the p95 of its end.
	EndP95Seconds float64 `json:"endP95Seconds"`
	// CutOffAt is when a deadline ends the turns of its interceptors before they are done, in
	// at least half of the runs; nil if they are done in time.
	CutOffAt *time.Time `json:"cutOffAt,omitempty"`
	// AtLeast: it takes longer by what is not known.
	AtLeast bool `json:"atLeast,omitempty"`
}

// History is how long something took on this cluster.
type History struct {
	// Name of the interceptor, or what else was measured.
	Name string `json:"name"`
	// Kind is "interceptor", "startup" or "termination".
	Kind string `json:"kind"`
	// Samples is how many turns were measured; 0 is unknown.
	Samples int `json:"samples"`
	// P50Seconds and P95Seconds are 0 without samples.
	P50Seconds float64 `json:"p50Seconds"`
	P95Seconds float64 `json:"p95Seconds"`
	// NotFinished is how many turns ended without a report: passed over, or skipped.
	NotFinished int `json:"notFinished,omitempty"`
	// Pods of this drain that depend on it.
	Pods int `json:"pods"`
}

// Fit says whether the pods fit on other nodes.
type Fit struct {
	// Asked is how many pods need another place.
	Asked int `json:"asked"`
	// Unplaced are those that have none.
	Unplaced []Unplaced `json:"unplaced,omitempty"`
	// UnplacedPods is how many there are; Unplaced may have fewer.
	UnplacedPods int `json:"unplacedPods"`
	// Missing are the resources that the pods that fit nowhere ask for.
	Missing map[corev1.ResourceName]string `json:"missing,omitempty"`
}

// Unplaced is a pod that fits nowhere.
type Unplaced struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Why       string `json:"why"`
}

// Bounds.
const (
	// DefaultRuns of the simulation.
	DefaultRuns = 200
	// minRuns of a large one.
	minRuns = 3
	// maxWork bounds the work of all runs, in pods and events that were looked at.
	maxWork = 3_000_000
	// maxEvents bounds one run.
	maxEvents = 2_000_000
	// maxSteps bounds how often the EvictionBudgets of one run decide.
	maxSteps = 20_000
	// horizon is how far a run looks.
	horizon = 31 * 24 * time.Hour
	// maxUnplaced is how many pods without a place are named.
	maxUnplaced = 100
)

// What always passes between two steps of a drain, as measured (docs/forecast.md).
const (
	// beginDelay: the command is called, the nodes are cordoned, and the requests are made.
	beginDelay = 800 * time.Millisecond
	// stepDelay: a controller notices a change.
	stepDelay = 100 * time.Millisecond
	// waveDelay: it is noted at the node that a wave begins, and the requests are made.
	waveDelay = 2 * stepDelay
	// refillDelay: the disruption controller has counted a pod.
	refillDelay = 200 * time.Millisecond
	// surgeGivesUp is when a pod without a replacement is given back.
	surgeGivesUp = 10 * time.Minute
)
