package cluster

// Options say what kind of control plane to start. The zero value is a plain one
// without nodes.
type Options struct {
	// Nodes is the number of fake nodes to begin with, named node-1, node-2, ...
	Nodes int

	// FeatureGates are given to kube-apiserver, kube-controller-manager and
	// kube-scheduler.
	FeatureGates map[string]bool

	// RuntimeConfig switches API versions of kube-apiserver on or off, such as
	// "lifecycle.k8s.io/v1alpha1": "true".
	RuntimeConfig map[string]string

	// SchedulerConfig is the content of a KubeSchedulerConfiguration. How to reach
	// the apiserver and leader election are filled in.
	SchedulerConfig string

	// SchedulerArgs are added to the arguments of kube-scheduler, and win over those
	// given by default.
	SchedulerArgs []string

	// APIServerArgs are added to the arguments of kube-apiserver, and win over
	// those given by default.
	APIServerArgs []string

	// RequestLog makes kube-apiserver log every request; see [Cluster.RequestLog].
	RequestLog bool

	// LocalExec runs what is executed in a container of a pod (kubectl exec) on this
	// machine, as the user of the test: fake nodes have no containers. kwok loses the exit
	// codes of commands that fail.
	LocalExec bool

	// MemoryLimits of components, as $GOMEMLIMIT has them ("6GiB"): below them a component
	// collects garbage when its heap has doubled, near them as often as it must.
	MemoryLimits map[ComponentName]string

	// Dir is the folder in which the cluster makes its own temporary one. Default:
	// the system's folder for temporary files.
	Dir string

	// Logf is told what happens, in a line without a newline. Default: nobody is
	// told, except on standard error about a build.
	Logf func(format string, args ...any)
}
