package webhook

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// startWindow is the time the limit on new requests counts over.
	startWindow = time.Minute
	// maxWindows bounds the memory of the limit, in pairs of node and class. The least
	// recently used ones are dropped.
	maxWindows = 4096
)

// starts limits how many requests the callers of a class may begin on a node
// within any minute (callers.md, trap 7). It counts what this replica began: a
// limit that holds across replicas would cost a write per call, and any bound
// ends a storm.
type starts struct {
	limit   int
	classes []translate.CallerClass
	clock   clock.PassiveClock

	mu      sync.Mutex
	windows *lru.Cache // startKey -> []started, oldest first.
}

type startKey struct {
	node  string
	class translate.CallerClass
}

type started struct {
	pod types.UID
	at  time.Time
}

func newStarts(limit int, classes []translate.CallerClass, clk clock.PassiveClock) *starts {
	return &starts{limit: limit, classes: classes, clock: clk, windows: lru.New(maxWindows)}
}

// applies says whether a limit counts for callers of this class.
func (s *starts) applies(class translate.CallerClass) Start {
	if s.limit > 0 && slices.Contains(s.classes, class) {
		return StartLimited
	}
	return StartFree
}

// take takes the room for one more request. A pod that has it keeps it for the
// minute: calls at the same time, and those that repeat a failed one, take it
// once.
func (s *starts) take(node string, class translate.CallerClass, pod types.UID) Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	var window []started
	key := startKey{node: node, class: class}
	if known, ok := s.windows.Get(key); ok {
		window = known.([]started)
	}
	now := s.clock.Now()
	window = slices.DeleteFunc(window, func(e started) bool { return now.Sub(e.at) >= startWindow })
	granted := slices.ContainsFunc(window, func(e started) bool { return e.pod == pod })
	if !granted && len(window) < s.limit {
		granted, window = true, append(window, started{pod: pod, at: now})
	}
	s.windows.Add(key, window)
	if granted {
		return StartGranted
	}
	return StartRefused
}
