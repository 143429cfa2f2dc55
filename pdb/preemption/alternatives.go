package preemption

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// mostNodes is on how many nodes to search for other victims per answer.
	mostNodes = 5
	// looksPerSecond limits the lists of pods, for any number of preemptors.
	looksPerSecond = 10
	// lookFor limits the time for all of them: the answer must not be late.
	lookFor = time.Second
	// onceIn is how long a preemptor that got other victims does not get any again. If it
	// still does not fit (because of a scheduler filter that we do not know), this must not
	// continue pod by pod.
	onceIn = 10 * time.Minute
	// maxGiven limits the memory.
	maxGiven = 10_000
)

// Alternatives finds other victims if no node may be used. The informers hold neither
// requests nor affinity, ports and claims (for 100,000 pods these are more than a hundred
// megabytes, and no other decision reads them), so the pods of a few nodes are listed. Safe
// for concurrent use.
//
// Permissions: list pods, which the informer needs as well.
type Alternatives struct {
	view    *View
	live    client.Reader
	clock   clock.PassiveClock
	log     logr.Logger
	limiter *rate.Limiter

	mu    sync.Mutex
	given map[types.UID]time.Time
	// next is where to begin among the nodes: the next answer tries others.
	next int
}

// NewAlternatives returns one that lists pods with the live reader.
func NewAlternatives(view *View, live client.Reader, clock clock.PassiveClock, log logr.Logger) *Alternatives {
	return &Alternatives{
		view: view, live: live, clock: clock, log: log,
		limiter: rate.NewLimiter(looksPerSecond, mostNodes), given: map[types.UID]time.Time{},
	}
}

// find replaces dropped nodes by ones with other victims, if no usable node is left. Errors
// are logged and do not change the decision.
func (s *Alternatives) find(ctx context.Context, in Input, sent map[types.UID]*corev1.Pod, d *Decision) {
	if len(d.Kept) > 0 || len(d.Dropped) == 0 || in.Preemptor.Entangled != "" || s.was(in.Preemptor.UID) || s.limiter.TokensAt(s.clock.Now()) < 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	for _, candidate := range s.some(s.view.promising(in, d.Dropped)) {
		if !s.limiter.AllowN(s.clock.Now(), 1) {
			return
		}
		other, why, err := s.search(ctx, in.Preemptor, candidate, sent)
		if err != nil {
			s.log.Error(err, "Cannot look for other victims", "node", candidate.Node)
			return
		}
		if why != "" {
			s.log.V(1).Info("There are no other victims", "node", candidate.Node, "preemptor", in.Preemptor.Namespace+"/"+in.Preemptor.Name, "reason", why)
			continue
		}
		s.log.Info("Other victims than the scheduler's, so that no budget is violated that must not be", "node", candidate.Node,
			"preemptor", in.Preemptor.Namespace+"/"+in.Preemptor.Name, "priority", in.Preemptor.Priority,
			"protected", names(candidate.Victims, other.Victims), "instead", names(other.Victims, candidate.Victims))
		d.Dropped = slices.DeleteFunc(d.Dropped, func(dropped Dropped) bool { return dropped.Node == other.Node })
		d.Kept = append(d.Kept, &other)
		d.WithAlternative++
		s.give(in.Preemptor.UID)
	}
}

// some are the nodes to search now.
func (s *Alternatives) some(promising []*Candidate) []*Candidate {
	if len(promising) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.next % len(promising)
	s.next = first + mostNodes
	promising = slices.Concat(promising[first:], promising[:first])
	return promising[:min(mostNodes, len(promising))]
}

// search searches one node for other victims.
func (s *Alternatives) search(ctx context.Context, preemptor Preemptor, candidate *Candidate, sent map[types.UID]*corev1.Pod) (Candidate, string, error) {
	list := &corev1.PodList{}
	if err := s.live.List(ctx, list, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", candidate.Node),
		// Of the API server's own cache, which has an index for this in all versions. It
		// has what the scheduler has seen; the view knows which pods left since.
		Raw: &metav1.ListOptions{ResourceVersion: "0"},
	}); err != nil {
		return Candidate{}, "", fmt.Errorf("list the pods of node %s: %w", candidate.Node, err)
	}
	in := s.view.alternativeInput(preemptor, candidate, sent, list.Items)
	in.Now = s.clock.Now()
	other, why := Alternative(in)
	return other, why, nil
}

// was reports whether the preemptor recently got other victims.
func (s *Alternatives) was(preemptor types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.given[preemptor]
	return ok && s.clock.Since(at) < onceIn
}

func (s *Alternatives) give(preemptor types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.given) >= maxGiven {
		clear(s.given)
	}
	s.given[preemptor] = s.clock.Now()
}

// names are the victims that are not among the others.
func names(victims, others []Victim) []string {
	var absent []string
	for i := range victims {
		if v := &victims[i]; find(others, v.UID) == nil {
			absent = append(absent, v.Namespace+"/"+v.Name)
		}
	}
	return absent
}
