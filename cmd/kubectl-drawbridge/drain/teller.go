package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// teller prints changes line by line where there is no terminal. The zero value is
// ready to use.
type teller struct {
	nodes map[string]v1alpha1.MaintenanceStage
	waves map[string]string
	pods  map[string]string
	block map[string]string
	// trouble is the last one that was printed.
	trouble string
}

// next returns the new lines of the snapshot.
func (t *teller) next(s snapshot) []string {
	if s.Maintenance == nil {
		return nil
	}
	if t.nodes == nil {
		t.nodes, t.waves = map[string]v1alpha1.MaintenanceStage{}, map[string]string{}
		t.pods, t.block = map[string]string{}, map[string]string{}
	}
	var lines []string
	if s.Trouble != t.trouble {
		t.trouble = s.Trouble
		lines = append(lines, "nodemaintenance/"+s.Maintenance.Name+": "+cmp.Or(s.Trouble, "it continues"))
	}
	for _, node := range s.Maintenance.Status.Nodes {
		if node.Stage == t.nodes[node.Name] || node.Stage == v1alpha1.StagePlanning {
			continue
		}
		t.nodes[node.Name] = node.Stage
		switch node.Stage {
		case v1alpha1.StageCordon:
			lines = append(lines, "node/"+node.Name+" cordoned")
		case v1alpha1.StageDrain:
			lines = append(lines, fmt.Sprintf("node/%s draining, %s to go", node.Name, text.Counted(node.PodsPendingEvacuation, "pod")))
		}
	}
	for _, node := range s.Maintenance.Status.Nodes {
		if node.Wave != "" && t.waves[node.Name] != node.Wave {
			t.waves[node.Name] = node.Wave
			lines = append(lines, fmt.Sprintf("node/%s wave %s", node.Name, node.Wave))
		}
	}
	for _, node := range s.Maintenance.Status.Nodes {
		if waiting := s.waiting(node); waiting != "" && t.block["node "+node.Name] != waiting {
			t.block["node "+node.Name] = waiting
			lines = append(lines, "node/"+node.Name+": "+waiting)
		}
	}
	lines = append(lines, t.tellPods(s.Pods)...)
	for _, node := range s.Maintenance.Status.Nodes {
		for _, pod := range node.BlockingPods {
			key, reason := pod.Namespace+"/"+pod.Name, string(pod.Reason)
			if t.block[key] != reason {
				t.block[key] = reason
				lines = append(lines, fmt.Sprintf("pod %s is blocked: %s%s", key, reason, colon(pod.Message)))
			}
		}
	}
	for _, node := range s.Maintenance.Status.Nodes {
		if node.Stage == v1alpha1.StageDrainComplete && t.pods["node "+node.Name] == "" {
			t.pods["node "+node.Name] = "drained"
			lines = append(lines, "node/"+node.Name+" drained")
		}
	}
	return lines
}

// tellPods returns the news about the pods, by name.
func (t *teller) tellPods(pods []movingPod) []string {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b movingPod) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	var lines []string
	for _, p := range sorted {
		news := podText(p)
		if news == "" || t.pods[p.UID] == news {
			continue
		}
		t.pods[p.UID] = news
		lines = append(lines, "pod "+p.Name+" "+news)
	}
	return lines
}

// podText is the text about a pod; the same text is printed once.
func podText(p movingPod) string {
	switch {
	case p.State == v1alpha1.StateEvicted:
		return "evicted"
	case p.State == v1alpha1.StateCanceled:
		return "stays" + colon(p.Message)
	case p.Interceptor == "":
		return ""
	case p.Interceptor == v1alpha1.ImperativeEvictionInterceptor && p.State != v1alpha1.StateBlocked:
		return "is being evicted" + colon(p.Message)
	case p.Interceptor == v1alpha1.ImperativeEvictionInterceptor:
		return "is blocked" + colon(p.Message)
	default:
		return "waits for " + turnOf(p) + colon(p.Message)
	}
}

func colon(message string) string {
	if message = text.Clean(message); message == "" {
		return ""
	}
	return ": " + message
}
