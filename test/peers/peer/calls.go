//go:build unix

package peer

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Calls are the evictions and deletions of pods of that name since a mark, but for those of its
// kubelet and dry runs.
func Calls(ctx context.Context, log *cluster.RequestLog, mark cluster.Mark, pod *corev1.Pod) (cluster.Requests, error) {
	since, err := log.Since(ctx, mark)
	return since.Where(func(r cluster.Request) bool {
		return r.Resource == "pods" && r.Namespace == pod.Namespace && r.Name == pod.Name && !r.DryRun && r.User != "kwok" &&
			(r.Verb == "create" && r.Subresource == "eviction" || r.Verb == "delete")
	}), err
}

// IsFor says that a call is for the pod of that UID, or for whatever pod has the name.
func IsFor(r cluster.Request, pod types.UID) bool {
	type options struct {
		Preconditions struct {
			UID types.UID `json:"uid"`
		} `json:"preconditions"`
	}
	body := struct {
		options               // Of a deletion.
		DeleteOptions options `json:"deleteOptions"` // Of an eviction.
	}{}
	if len(r.Body) > 0 && json.Unmarshal(r.Body, &body) != nil {
		return true
	}
	uid := body.Preconditions.UID + body.DeleteOptions.Preconditions.UID // One of both is empty.
	return uid == "" || uid == pod
}
