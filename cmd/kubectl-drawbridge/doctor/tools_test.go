package doctor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestWhichProgramAContainerRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		container corev1.Container
		want      string
	}{
		"Karpenter, whose image is called controller":       {corev1.Container{Image: "public.ecr.aws/karpenter/controller:1.15.0@sha256:00"}, "Karpenter"},
		"the Cluster Autoscaler, from a mirror with a port": {corev1.Container{Image: "mirror.example.com:5000/autoscaling/cluster-autoscaler:v1.37.0"}, "Cluster Autoscaler"},
		"an image by its digest":                            {corev1.Container{Image: "ghcr.io/kubereboot/kured@sha256:00"}, "kured"},
		"an image that says nothing, by its command":        {corev1.Container{Image: "example.com/ours:1", Command: []string{"/bin/descheduler"}}, "descheduler"},
		"one whose name only begins so":                     {corev1.Container{Image: "example.com/descheduler-dashboard:1"}, ""},
		"none":                                              {corev1.Container{Image: "nginx"}, ""},
		"no image":                                          {corev1.Container{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if tool := toolNamed(tc.container); tool != nil {
				got = tool.name
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheValueOfAFlag(t *testing.T) {
	for name, tc := range map[string]struct {
		container corev1.Container
		want      string
	}{
		"after an equals sign":      {corev1.Container{Args: []string{"--drain-timeout=5m"}}, "5m"},
		"in the next word":          {corev1.Container{Args: []string{"--drain-timeout", "5m"}}, "5m"},
		"with one dash, in command": {corev1.Container{Command: []string{"kured", "-drain-timeout=5m"}}, "5m"},
		"without one":               {corev1.Container{Args: []string{"--drain-timeout", "--other"}}, "true"},
		"at the end":                {corev1.Container{Args: []string{"--drain-timeout"}}, "true"},
		"of another one":            {corev1.Container{Args: []string{"--skip-drain-timeout=5m"}}, ""},
		"a word that is no flag":    {corev1.Container{Args: []string{"drain-timeout=5m"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := flagOf(tc.container, "drain-timeout"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestDrainTools(t *testing.T) {
	running := func(image string, args ...string) func(*Facts) {
		return func(f *Facts) {
			template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "sidecar"}, {Image: image, Args: args}}}}
			f.meetTool("Deployment", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "tool"}}, template)
		}
	}
	needing := func(minimum time.Duration) func(*Facts) {
		return func(f *Facts) {
			r := v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: "db.example.com"}}
			r.Spec.Minimum = &metav1.Duration{Duration: minimum}
			f.Registrations = append(f.Registrations, r)
		}
	}
	hooked := func(minimum time.Duration) func(*Facts) {
		return func(f *Facts) {
			h := v1alpha1.EvacuationHook{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "drain"}}
			h.Spec.Minimum = &metav1.Duration{Duration: minimum}
			f.Hooks = append(f.Hooks, h)
		}
	}
	limited := func(limits ...TimeLimit) func(*Facts) { return func(f *Facts) { f.TimeLimits = limits } }
	pool := TimeLimit{Tool: "Karpenter", Object: "nodepool/spot", Field: "spec.template.spec.terminationGracePeriod", After: time.Minute}
	for name, tc := range map[string]struct {
		changes  []func(*Facts)
		summary  string
		findings []string
	}{
		"none": {summary: "none is known by its workload; kubectl and managed services have none"},
		"two of one kind, and another": {
			changes: []func(*Facts){running("kubereboot/kured"), running("kubereboot/kured"), running("karpenter/controller")},
			summary: "kured, Karpenter",
		},
		"what they are told": {
			changes: []func(*Facts){running("kured", "--drain-timeout=10m"), running("cluster-autoscaler"), needing(time.Hour)},
			summary: "kured (drain-timeout=10m, then it uncordons and tries again in its next period), Cluster Autoscaler (max-pod-eviction-time=2m0s, then it pauses and comes back)",
		},
		"a descheduler that knows of evictions in the background": {changes: []func(*Facts){running("descheduler", "--feature-gates=EvictionsInBackground=true")}, summary: "descheduler"},
		"one that does not": {
			changes:  []func(*Facts){running("descheduler")},
			findings: []string{"WARN deployment/kube-system/tool: descheduler: without its feature gate EvictionsInBackground it takes a pod that is being prepared for one that cannot be evicted, and continues with the next one: with each cycle, more pods of a node are in the middle of an evacuation"},
		},
		"a kured that reboots all the same": {
			changes:  []func(*Facts){running("kured", "--force-reboot", "--drain-timeout=1m")},
			findings: []string{"WARN deployment/kube-system/tool: kured: with force-reboot it reboots a node when its drain fails or lasts longer than drain-timeout (1m), whatever interceptors do"},
		},
		"nobody says how long it needs": {changes: []func(*Facts){limited(pool), running("aws-node-termination-handler")}, summary: "aws-node-termination-handler (node-termination-grace-period=120, then the instance ends)"},
		"an interceptor needs less":     {changes: []func(*Facts){limited(pool), running("karpenter"), needing(time.Minute)}, summary: "Karpenter"},
		"an interceptor needs more": {
			changes:  []func(*Facts){limited(pool), running("karpenter"), needing(time.Minute + time.Second), needing(time.Second)},
			findings: []string{"WARN nodepool/spot: Karpenter waits 1m0s for the pods of a node (spec.template.spec.terminationGracePeriod), then it deletes them; evictioninterceptor/db.example.com needs 1m1s"},
		},
		"a hook needs more, by a flag in seconds": {
			changes:  []func(*Facts){running("aws-node-termination-handler"), needing(time.Second), hooked(time.Hour)},
			findings: []string{"WARN deployment/kube-system/tool: aws-node-termination-handler waits 2m0s for the pods of a node (--node-termination-grace-period), then the instance ends; evacuationhook/shop/drain needs 1h0m0s"},
		},
		"a limit that nobody understands": {changes: []func(*Facts){running("machine-controller-manager", "--machine-drain-timeout=soon"), needing(time.Hour)}, summary: "Gardener's machine-controller-manager (machine-drain-timeout=soon, then it deletes the pods)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fine()
			for _, change := range tc.changes {
				change(&f)
			}
			got := only(t, f, "drain-tools")
			if diff := cmp.Diff(tc.findings, brief(got)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got.Summary != tc.summary {
				t.Errorf("summary %q, want %q", got.Summary, tc.summary)
			}
		})
	}
}

func TestWhatObjectsSayOfTheTime(t *testing.T) {
	object := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	for name, tc := range map[string]struct {
		read func(*unstructured.Unstructured) (TimeLimit, bool)
		spec map[string]any
		want time.Duration
		ok   bool
	}{
		"a NodePool":                    {nodePoolLimit, map[string]any{"template": map[string]any{"spec": map[string]any{"terminationGracePeriod": "1h30m"}}}, 90 * time.Minute, true},
		"a NodePool that says nothing":  {nodePoolLimit, map[string]any{}, 0, false},
		"a NodePool with nonsense":      {nodePoolLimit, map[string]any{"template": map[string]any{"spec": map[string]any{"terminationGracePeriod": int64(3)}}}, 0, false},
		"a Machine of v1beta2":          {machineLimit, map[string]any{"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(300)}}, 5 * time.Minute, true},
		"a Machine of v1beta1":          {machineLimit, map[string]any{"nodeDrainTimeout": "5m0s"}, 5 * time.Minute, true},
		"a Machine that waits for ever": {machineLimit, map[string]any{"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(0)}}, 0, false},
		"a Machine with the largest":    {machineLimit, map[string]any{"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(1 << 62)}}, 100 * 365 * 24 * time.Hour, true},
		"a Machine that says nothing":   {machineLimit, map[string]any{}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := tc.read(object(tc.spec))
			if ok != tc.ok || ok && got.After != tc.want {
				t.Errorf("%s, %t, want %s, %t", got.After, ok, tc.want, tc.ok)
			}
		})
	}
}
