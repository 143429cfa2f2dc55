package native

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const (
	// evictorPriority is the only one that the API server accepts for the evictor (C.2).
	evictorPriority = 100
	// maxName is the longest name of an object.
	maxName = 253
	// reservedDomains are not for requesters (C.1).
	k8sDomain, kubernetesDomain = "k8s.io", "kubernetes.io"
)

// compareResponders is the order of the API server: the higher priority first, then by domain,
// the top label first, then by key (C.2).
func compareResponders(a, b lifecyclev1alpha1.TargetResponder) int {
	aDomain, aKey, _ := strings.Cut(a.Name, "/")
	bDomain, bKey, _ := strings.Cut(b.Name, "/")
	return cmp.Or(
		cmp.Compare(priorityOf(b), priorityOf(a)),
		slices.Compare(reversed(aDomain), reversed(bDomain)),
		cmp.Compare(aKey, bKey),
	)
}

func priorityOf(r lifecyclev1alpha1.TargetResponder) int32 {
	if r.Priority == nil {
		return -1 // The server refuses it; it comes last.
	}
	return *r.Priority
}

func reversed(domain string) []string {
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return labels
}

// planOf are the responders of a pod in their order, with ours if it has interceptors and there
// is a place for it, and with the evictor. A pod that names ours itself has it once, where it
// wants it.
func planOf(pod []lifecyclev1alpha1.TargetResponder, ours bool, priority int32) []lifecyclev1alpha1.TargetResponder {
	plan := slices.Clone(pod)
	if ours && !isFull(pod) && !namesOurs(pod) {
		plan = append(plan, lifecyclev1alpha1.TargetResponder{Name: v1alpha1.NativeResponder, Priority: &priority})
	}
	plan = append(plan, lifecyclev1alpha1.TargetResponder{Name: lifecyclev1alpha1.EvictionResponderImperativeEviction, Priority: new(int32(evictorPriority))})
	for i := range plan {
		plan[i].State = lifecyclev1alpha1.ResponderStateInactive
	}
	slices.SortStableFunc(plan, compareResponders)
	return plan
}

// isFull reports whether a pod has so many responders that its Eviction has no place for ours.
func isFull(pod []lifecyclev1alpha1.TargetResponder) bool {
	return len(pod) >= v1alpha1.MaxNativeResponders && !namesOurs(pod)
}

// namesOurs reports whether a pod names ours itself.
func namesOurs(pod []lifecyclev1alpha1.TargetResponder) bool {
	return slices.ContainsFunc(pod, func(r lifecyclev1alpha1.TargetResponder) bool { return r.Name == v1alpha1.NativeResponder })
}

// nextName is the name of the next Eviction of a pod: pod-N-NAME, with N one more than in any of
// the Evictions of pods of that name. A name that would be too long is cut, and told from others
// of the same beginning by a hash.
func nextName(pod string, taken []string) string {
	highest := 0
	for _, name := range taken {
		if n, ok := numberOf(name, pod); ok && n > highest {
			highest = n
		}
	}
	return nameOf(pod, highest+1)
}

func nameOf(pod string, n int) string {
	prefix := fmt.Sprintf("pod-%d-", n)
	if room := maxName - len(prefix); len(pod) > room {
		sum := sha256.Sum256([]byte(pod))
		hash := hex.EncodeToString(sum[:4])
		pod = strings.TrimRight(pod[:room-len(hash)-1], "-.") + "-" + hash
	}
	return prefix + pod
}

// numberOf is N of a name that nameOf has made for this pod.
func numberOf(name, pod string) (int, bool) {
	number, _, _ := strings.Cut(strings.TrimPrefix(name, "pod-"), "-")
	n, err := strconv.Atoi(number)
	return n, err == nil && n > 0 && nameOf(pod, n) == name
}

// RequesterKey is the native name of a requester of ours: kubectl-drain.drawbridge.dev is
// drawbridge.dev/kubectl-drain, and drain.example.com is drain.example.com/requester. A name
// under a domain that is not for requesters (C.1) stands under ours.
func RequesterKey(name string) string {
	if own, ok := strings.CutSuffix(name, "."+v1alpha1.GroupName); ok && own != "" && !strings.Contains(own, ".") {
		return v1alpha1.GroupName + "/" + own
	}
	domain := strings.ToLower(strings.TrimRight(name, "."))
	for _, reserved := range []string{k8sDomain, kubernetesDomain} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return v1alpha1.GroupName + "/" + shortened(strings.ReplaceAll(domain, ".", "-"))
		}
	}
	return domain + "/requester"
}

// shortened fits a word into the name of a key.
func shortened(word string) string {
	const limit = 63
	if len(word) <= limit {
		return word
	}
	sum := sha256.Sum256([]byte(word))
	return strings.TrimRight(word[:limit-9], "-") + "-" + hex.EncodeToString(sum[:4])
}

// wishName is the name of the native EvictionRequest by which a requester of ours asks for a
// pod.
func wishName(pod types.UID, requester string) string {
	sum := sha256.Sum256([]byte(requester))
	return string(pod) + "-" + hex.EncodeToString(sum[:4])
}
