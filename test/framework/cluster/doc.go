// Package cluster runs a real Kubernetes control plane inside a test: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and, for nodes, kwok.
// What a test proves against it is proved against the disruption controller,
// the eviction subresource and the admission chain themselves, not against a
// fake.
//
// All components come from one multi-call binary built from ordinary Go modules
// (folder kube, a module of its own). The first build takes about six minutes
// on two cores; it is kept, and a control plane then boots in a few seconds.
// With DRAWBRIDGE_KUBERNETES=oldest the control plane and kubectl are those of the
// oldest minor release that the chart allows (folder kube-oldest), for `make
// test-skew`.
//
// Most suites want one control plane for all their tests:
//
//	var c *cluster.Cluster
//
//	func TestMain(m *testing.M) {
//		os.Exit(cluster.Main(m, cluster.Options{Nodes: 2}, func(up *cluster.Cluster) error {
//			c = up
//			return nil
//		}))
//	}
//
// and a namespace of their own per test, from [Cluster.Namespace]. What tests wait for and
// want of pods and requests is in objects.go.
//
// Everything listens on 127.0.0.1 and lives in one temporary folder. Processes
// and folder are gone after [Cluster.Stop], and also when the test process was
// killed. Linux and macOS only.
package cluster
