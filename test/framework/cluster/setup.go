package cluster

import (
	"context"
	"crypto/tls"
	_ "embed"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

//go:embed stages.yaml
var kwokStages []byte

// localExec lets kwok's kubelet server run commands, whatever the pod.
const localExec = `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata:
  name: local
spec:
  execs:
  - local: {}
`

const (
	// auditLogMegabytes is how long the log of requests may become: forever.
	auditLogMegabytes = 1 << 20

	serviceRange       = "10.96.0.0/16"
	apiserverServiceIP = "10.96.0.1"
	podRange           = "10.244.0.0/16"
	issuer             = "https://kubernetes.default.svc"
)

// idleControllers are parts of kube-controller-manager that do nothing for fake nodes but
// take CPU, some of them ten times a second.
var idleControllers = []string{
	"certificatesigningrequest-approving-controller",
	"certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller",
	"endpointslice-mirroring-controller",
	"persistentvolume-attach-detach-controller",
	"persistentvolume-expander-controller",
	"root-ca-certificate-publisher-controller",
	"ttl-controller",
}

// auditPolicy logs every request but health checks and what tests never ask for, when it comes in and when it
// is answered; evictions and deletions with their body, which is where dry run and
// preconditions stand, and EvictionRequests, whose body says which pod they are about.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/readyz*", "/livez*"]
- level: None
  users: ["admin", "system:apiserver", "system:kube-controller-manager", "system:serviceaccount:kube-system:namespace-controller"]
  verbs: ["get", "list", "watch"]
- level: Request
  resources:
  - resources: ["pods/eviction"]
- level: Request
  verbs: ["delete", "deletecollection"]
- level: Request
  verbs: ["create", "update", "patch"]
  resources:
  - group: drawbridge.dev
    resources: ["evictionrequests"]
- level: Metadata
`

// prepare writes every file and works out every argument; nothing runs yet.
func (c *Cluster) prepare() error {
	for _, dir := range []string{"bin", "config", "etcd", "home", "kubeconfig", "logs", "pki"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o700); err != nil {
			return fmt.Errorf("create cluster folder: %w", err)
		}
	}
	if err := os.Symlink(c.binaries.of(kubectlPart), filepath.Join(c.dir, "bin", kubectlPart)); err != nil {
		return fmt.Errorf("link kubectl: %w", err)
	}
	var err error
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	if err := c.writePKI(); err != nil {
		return err
	}
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	c.health = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.authority.pool(), MinVersion: tls.VersionTLS12},
		// A connection to a component that was killed must not be tried again.
		DisableKeepAlives: true,
	}}

	apiserver := "https://" + loopback(ports[2])
	c.admin, err = c.configFor(apiserver, adminUser, mastersGroup)
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	c.etcd = "http://" + loopback(ports[0])
	c.add(Etcd, c.etcd+"/health", c.etcdArgs(c.etcd, "http://"+loopback(ports[1])))
	apiserverArgs, err := c.apiserverArgs(c.etcd, ports[2])
	if err != nil {
		return err
	}
	c.add(APIServer, apiserver+"/readyz", apiserverArgs)
	controllerArgs, err := c.controllerManagerArgs(ports[3])
	if err != nil {
		return err
	}
	c.add(ControllerManager, "https://"+loopback(ports[3])+"/healthz", controllerArgs)
	schedulerArgs, err := c.schedulerArgs(ports[4])
	if err != nil {
		return err
	}
	c.add(Scheduler, "https://"+loopback(ports[4])+"/healthz", schedulerArgs)
	c.kubeletPort = ports[5]
	kwokArgs, err := c.kwokArgs(c.kubeletPort)
	if err != nil {
		return err
	}
	c.add(Kwok, "http://"+loopback(ports[5])+"/healthz", kwokArgs)
	if c.requestLog != nil {
		c.components[APIServer].whenEnded = c.requestLog.abandon
	}
	return nil
}

func (c *Cluster) add(name ComponentName, healthURL string, args []string) {
	c.components[name] = &Component{
		name:      name,
		args:      args,
		healthURL: healthURL,
		logPath:   filepath.Join(c.dir, "logs", string(name)+".log"),
		cluster:   c,
	}
}

func (c *Cluster) pki(name string) string { return filepath.Join(c.dir, "pki", name) }

func (c *Cluster) writePKI() error {
	certificate, key, err := c.authority.serving()
	if err != nil {
		return err
	}
	tokenKey, tokenKeyPEM, err := newKey()
	if err != nil {
		return err
	}
	tokenPublic, err := publicKeyPEM(tokenKey)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":      c.authority.certPEM,
		"ca.key":      c.authority.keyPEM,
		"serving.crt": certificate,
		"serving.key": key,
		"token.key":   tokenKeyPEM,
		"token.pub":   tokenPublic,
	} {
		if err := os.WriteFile(c.pki(name), content, 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}

func (c *Cluster) etcdArgs(client, peer string) []string {
	return []string{
		"--name=etcd",
		"--data-dir=" + c.etcdDir(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=etcd=" + peer,
		"--log-level=warn",
		// Nothing has to survive this machine, only this process.
		"--unsafe-no-fsync",
		"--snapshot-count=100000",
		"--quota-backend-bytes=" + strconv.Itoa(4<<30),
	}
}

func (c *Cluster) apiserverArgs(etcd string, port int) ([]string, error) {
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // It refuses to publish a loopback address.
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.pki("serving.crt"),
		"--tls-private-key-file=" + c.pki("serving.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + c.pki("token.pub"),
		"--service-account-signing-key-file=" + c.pki("token.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", // Nobody resolves the names of fake nodes.
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--profiling=false",
	}
	if c.options.RequestLog {
		policy := filepath.Join(c.dir, "config", "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, fmt.Errorf("write audit policy: %w", err)
		}
		c.requestLog = &RequestLog{path: filepath.Join(c.dir, "logs", "audit.log")}
		args = append(args,
			"--audit-policy-file="+policy,
			"--audit-log-path="+c.requestLog.path,
			"--audit-log-mode=blocking", // Received is written before a request is worked on.
			// Never rotate: the log is read from beginning to end. 0 says so only since
			// 1.35 or so; before, it stands for 100 megabytes.
			"--audit-log-maxsize="+strconv.Itoa(auditLogMegabytes),
		)
	}
	if len(c.options.RuntimeConfig) > 0 {
		args = append(args, "--runtime-config="+joinMap(c.options.RuntimeConfig))
	}
	args = append(args, c.featureGates()...)
	return append(args, c.options.APIServerArgs...), nil
}

func (c *Cluster) controllerManagerArgs(port int) ([]string, error) {
	kubeconfig, err := c.KubeconfigFile("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	args := slices.Concat(c.servingArgs(port), []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.pki("token.key"),
		"--root-ca-file=" + c.pki("ca.crt"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"),
		"--cluster-signing-key-file=" + c.pki("ca.key"),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--flex-volume-plugin-dir=" + filepath.Join(c.dir, "home"), // It would create a system folder.
		"--node-monitor-period=1s",
		// Fake nodes report every ten minutes.
		"--node-monitor-grace-period=1h",
		"--profiling=false",
	}, c.featureGates())
	if c.binaries.release == newest {
		// The oldest does not know all of them.
		args = append(args, "--concurrent-disruption-syncs=4", "--controllers=*,-"+strings.Join(idleControllers, ",-"))
	}
	return args, nil
}

func (c *Cluster) schedulerArgs(port int) ([]string, error) {
	path, err := c.writeSchedulerConfig(c.options.SchedulerConfig)
	if err != nil {
		return nil, err
	}
	return slices.Concat(c.servingArgs(port), []string{"--config=" + path}, c.featureGates(), c.options.SchedulerArgs), nil
}

func (c *Cluster) writeSchedulerConfig(given string) (string, error) {
	kubeconfig, err := c.KubeconfigFile("system:kube-scheduler")
	if err != nil {
		return "", err
	}
	config, err := schedulerConfig(given, kubeconfig)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "config", "scheduler.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return "", fmt.Errorf("write scheduler configuration: %w", err)
	}
	return path, nil
}

// ConfigureScheduler restarts kube-scheduler with another KubeSchedulerConfiguration
// than [Options] has, for what is known only when the cluster runs, such as the
// certificate of an extender. It returns when the scheduler is ready.
func (c *Cluster) ConfigureScheduler(ctx context.Context, config string) error {
	if _, err := c.writeSchedulerConfig(config); err != nil {
		return err
	}
	return c.components[Scheduler].Restart(ctx)
}

// schedulerConfig completes the caller's configuration, or an empty one, with what
// only this package knows.
func schedulerConfig(given, kubeconfig string) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(given), &config); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	if config == nil { // An empty document.
		config = map[string]any{}
	}
	for key, value := range map[string]any{
		"apiVersion":               "kubescheduler.config.k8s.io/v1",
		"kind":                     "KubeSchedulerConfiguration",
		"podInitialBackoffSeconds": 1,
		"podMaxBackoffSeconds":     2,
	} {
		if _, set := config[key]; !set {
			config[key] = value
		}
	}
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	return yaml.Marshal(config)
}

func (c *Cluster) kwokArgs(port int) ([]string, error) {
	kubeconfig, err := c.KubeconfigFile(kubeletUser, mastersGroup)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.dir, "config", "kwok.yaml")
	config := kwokStages
	if c.options.LocalExec {
		config = slices.Concat(kwokStages, []byte(localExec))
	}
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, fmt.Errorf("write stages: %w", err)
	}
	return []string{
		"--config=" + path,
		"--kubeconfig=" + kubeconfig,
		"--manage-all-nodes",
		"--server-address=" + loopback(port),
		"--node-ip=127.0.0.1",
		// For kube-apiserver, which asks a kubelet by TLS. Both protocols share the port.
		"--tls-cert-file=" + c.pki("serving.crt"),
		"--tls-private-key-file=" + c.pki("serving.key"),
		"--cidr=" + podRange,
	}, nil
}

// servingArgs let a component answer health checks with a certificate we know.
func (c *Cluster) servingArgs(port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.pki("serving.crt"),
		"--tls-private-key-file=" + c.pki("serving.key"),
	}
}

func (c *Cluster) featureGates() []string {
	if len(c.options.FeatureGates) == 0 {
		return nil
	}
	gates := make(map[string]string, len(c.options.FeatureGates))
	for name, enabled := range c.options.FeatureGates {
		gates[name] = strconv.FormatBool(enabled)
	}
	return []string{"--feature-gates=" + joinMap(gates)}
}

func joinMap(values map[string]string) string {
	pairs := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key+"="+values[key])
	}
	return strings.Join(pairs, ",")
}

// environment is ours, less what would change where the components and kubectl
// connect to or which files of the user they read.
func (c *Cluster) environment() []string {
	environment := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HOME", "KUBECONFIG", "KUBECACHEDIR", "KUBERC":
			return true
		}
		return strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "KUBERNETES_") || strings.HasPrefix(name, "KWOK_")
	})
	return append(environment, "HOME="+filepath.Join(c.dir, "home"), "KUBERC=off")
}
