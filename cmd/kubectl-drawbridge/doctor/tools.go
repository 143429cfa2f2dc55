package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DrainTool is a workload that runs a program which evicts pods.
type DrainTool struct {
	// Name of the program, as people call it.
	Name string
	// Object is the workload, as kind/namespace/name.
	Object string
	// Container runs the program. Only image, command, arguments and environment are kept.
	Container corev1.Container
}

// TimeLimit is what an object says of how long a program waits for pods of a node.
type TimeLimit struct {
	// Tool is the name of the program.
	Tool string
	// Object is what says it, as kind/name or kind/namespace/name, and Field where.
	Object, Field string
	// After is how long, and no less than 0. Then the program deletes the pods.
	After time.Duration
}

// drainTool is a program that is known. What they do was read in their sources, or seen with the
// programs themselves (docs/guides/callers.md).
type drainTool struct {
	name string
	// words of which one is a part of the image's path, or the name of the command.
	words []string
	// limit is the flag that bounds how long it waits for the pods of a node; empty if there is
	// none. standard is its value where nobody sets it; empty stands for ever.
	limit, standard string
	// then says what it does at the limit. deletes: it ends pods that are still being prepared.
	then    string
	deletes bool
	// judge says what else is wrong and what to do, if both are not empty. May be nil.
	judge func(c corev1.Container) (what, do string)
}

// drainTools are known programs.
var drainTools = []drainTool{
	{name: "Karpenter", words: []string{"karpenter"}},
	{name: "Cluster Autoscaler", words: []string{"cluster-autoscaler"}, limit: "max-pod-eviction-time", standard: "2m0s", then: "then it pauses and comes back"},
	{name: "Cluster API", words: []string{"cluster-api-controller", "capi-controller-manager"}},
	{name: "descheduler", words: []string{"descheduler"}, judge: descheduler},
	{name: "kured", words: []string{"kured"}, limit: "drain-timeout", then: "then it uncordons and tries again in its next period", judge: kured},
	{name: "node-maintenance-operator", words: []string{"node-maintenance-operator", "node-maintenance-rhel9-operator"}},
	{name: "aws-node-termination-handler", words: []string{"aws-node-termination-handler"}, limit: "node-termination-grace-period", standard: "120", then: "then the instance ends", deletes: true},
	{name: "Gardener's machine-controller-manager", words: []string{"machine-controller-manager"}, limit: "machine-drain-timeout", standard: "2h0m0s", then: "then it deletes the pods", deletes: true},
	{name: "system-upgrade-controller", words: []string{"system-upgrade-controller"}},
	{name: "eviction-autoscaler", words: []string{"eviction-autoscaler", "k8s-pdb-autoscaler"}},
	{name: "draino", words: []string{"draino"}},
}

func descheduler(c corev1.Container) (what, do string) {
	if strings.Contains(flagOf(c, "feature-gates"), "EvictionsInBackground=true") {
		return "", ""
	}
	return "without its feature gate EvictionsInBackground it takes a pod that is being prepared for one that cannot be evicted, and continues with the next one: with each cycle, more pods of a node are in the middle of an evacuation",
		"Start it with --feature-gates=EvictionsInBackground=true (docs/guides/descheduler.md)."
}

func kured(c corev1.Container) (what, do string) {
	if force := flagOf(c, "force-reboot"); force == "" || force == "false" {
		return "", ""
	}
	return fmt.Sprintf("with force-reboot it reboots a node when its drain fails or lasts longer than drain-timeout (%s), whatever interceptors do", cmp.Or(flagOf(c, "drain-timeout"), "never")),
		"Take --force-reboot away, or set --drain-timeout longer than the slowest interceptor (docs/guides/callers.md)."
}

// flagOf is the value of a flag in the command or the arguments of a container, "true" if it has
// none, and empty if it is not there.
func flagOf(c corev1.Container, name string) string {
	words := append(slices.Clone(c.Command), c.Args...)
	for i, word := range words {
		flag, value, has := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if flag != name || !strings.HasPrefix(word, "-") {
			continue
		}
		switch {
		case has:
			return value
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			return words[i+1]
		default:
			return "true"
		}
	}
	return ""
}

// toolNamed is the program that a container runs, nil if none is known.
func toolNamed(c corev1.Container) *drainTool {
	image, _, _ := strings.Cut(c.Image, "@")
	parts := strings.Split(image, "/")
	parts[len(parts)-1], _, _ = strings.Cut(parts[len(parts)-1], ":")
	if len(c.Command) > 0 {
		parts = append(parts, path.Base(c.Command[0]))
	}
	for i := range drainTools {
		if slices.ContainsFunc(drainTools[i].words, func(word string) bool { return slices.Contains(parts, word) }) {
			return &drainTools[i]
		}
	}
	return nil
}

// meetTool remembers a workload that runs a program which evicts pods.
func (f *Facts) meetTool(kind string, object client.Object, template *corev1.PodTemplateSpec) {
	for _, c := range template.Spec.Containers {
		if tool := toolNamed(c); tool != nil {
			f.Tools = append(f.Tools, DrainTool{
				Name: tool.name, Object: nameOf(kind, object.GetNamespace(), object.GetName()),
				Container: corev1.Container{Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Env},
			})
			return
		}
	}
}

// timeLimits reads the objects in which Karpenter and Cluster API are told how long they may wait.
func (g *Gatherer) timeLimits(ctx context.Context, f *Facts) {
	for _, kind := range []struct {
		source Source
		group  schema.GroupKind
		limit  func(*unstructured.Unstructured) (TimeLimit, bool)
	}{
		{NodePools, schema.GroupKind{Group: "karpenter.sh", Kind: "NodePool"}, nodePoolLimit},
		{Machines, schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, machineLimit},
	} {
		mapping, err := g.reader.RESTMapper().RESTMapping(kind.group)
		if meta.IsNoMatchError(err) {
			continue // It is not installed.
		}
		if !f.note(kind.source, err) {
			continue
		}
		read(ctx, g, f, kind.source, func() *unstructured.UnstructuredList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(mapping.GroupVersionKind)
			return list
		}, func(object *unstructured.Unstructured) {
			if limit, ok := kind.limit(object); ok {
				limit.Object = nameOf(object.GetKind(), object.GetNamespace(), object.GetName())
				f.TimeLimits = append(f.TimeLimits, limit)
			}
		})
	}
}

func nodePoolLimit(object *unstructured.Unstructured) (TimeLimit, bool) {
	text, _, _ := unstructured.NestedString(object.Object, "spec", "template", "spec", "terminationGracePeriod") // None if it is no text.
	after, err := time.ParseDuration(text)
	return TimeLimit{Tool: "Karpenter", Field: "spec.template.spec.terminationGracePeriod", After: after}, err == nil && after >= 0
}

func machineLimit(object *unstructured.Unstructured) (TimeLimit, bool) {
	limit := TimeLimit{Tool: "Cluster API", Field: "spec.deletion.nodeDrainTimeoutSeconds"}
	if seconds, found, _ := unstructured.NestedInt64(object.Object, "spec", "deletion", "nodeDrainTimeoutSeconds"); found {
		limit.After = time.Duration(min(max(seconds, 0), int64(100*365*24*time.Hour/time.Second))) * time.Second
		return limit, limit.After > 0 // 0 stands for ever.
	}
	text, _, _ := unstructured.NestedString(object.Object, "spec", "nodeDrainTimeout")
	after, err := time.ParseDuration(text)
	limit.Field, limit.After = "spec.nodeDrainTimeout", after
	return limit, err == nil && after > 0
}

// longestMinimum is the longest time that an interceptor says it needs, and who says it.
func longestMinimum(f *Facts) (longest time.Duration, object string) {
	for i := range f.Registrations {
		if r := &f.Registrations[i]; r.Spec.Minimum != nil && r.Spec.Minimum.Duration > longest {
			longest, object = r.Spec.Minimum.Duration, nameOf("EvictionInterceptor", "", r.Name)
		}
	}
	for i := range f.Hooks {
		if h := &f.Hooks[i]; h.Spec.Minimum != nil && h.Spec.Minimum.Duration > longest {
			longest, object = h.Spec.Minimum.Duration, nameOf("EvacuationHook", h.Namespace, h.Name)
		}
	}
	return longest, object
}

// knownTools says which programs evict pods here, how long they wait, and whether interceptors have
// the time that they say they need.
func knownTools(f *Facts) verdict {
	var v verdict
	var said []string
	needs, who := longestMinimum(f)
	var findings []Finding
	short := func(object, tool, setting string, after time.Duration, then string) {
		findings = append(findings, Finding{
			Severity: Warn, Object: object,
			What: fmt.Sprintf("%s waits %s for the pods of a node (%s), %s; %s needs %s", tool, after, setting, then, who, needs),
			Do:   "Set it longer than the slowest interceptor, and than the pods' grace periods, or shorten spec.minimum (docs/guides/callers.md#what-to-set).",
		})
	}
	for _, t := range f.Tools {
		tool := toolNamed(t.Container)
		if tool == nil {
			continue
		}
		text := tool.name
		if limit := cmp.Or(flagOf(t.Container, tool.limit), tool.standard); tool.limit != "" && limit != "" {
			text = fmt.Sprintf("%s (%s=%s, %s)", tool.name, tool.limit, limit, tool.then)
			if after, ok := parseLimit(limit); ok && tool.deletes && after < needs {
				short(t.Object, tool.name, "--"+tool.limit, after, tool.then)
			}
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
		if tool.judge != nil {
			if what, do := tool.judge(t.Container); what != "" {
				findings = append(findings, Finding{Severity: Warn, Object: t.Object, What: tool.name + ": " + what, Do: do})
			}
		}
	}
	for _, limit := range f.TimeLimits {
		if limit.After < needs {
			short(limit.Object, limit.Tool, limit.Field, limit.After, "then it deletes them")
		}
	}
	v.findings = bounded(findings, "settings of drain tools")
	v.summary = "none is known by its workload; kubectl and managed services have none"
	if len(said) > 0 {
		v.summary = strings.Join(said, ", ")
	}
	return v
}

// parseLimit reads a duration, or a number of seconds.
func parseLimit(text string) (time.Duration, bool) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	after, err := time.ParseDuration(text)
	return after, err == nil
}
