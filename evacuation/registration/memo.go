package registration

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/cel"
)

// Bounds of the memo: at most two times memoSize answers, each with a text of at most
// memoText bytes. In practice a text has some hundred bytes.
const (
	memoSize = 4096
	memoText = 2048
)

// memo remembers what the conditions of registrations say of pods that are alike. Those of
// one owner are, for nearly all conditions, and each of them is asked about many times: by
// each event of the pod, and by the webhook. An evaluation takes some fifty times as long as
// looking it up. It may be used by several goroutines.
type memo struct {
	mu sync.Mutex
	// Answers that were asked for since young was begun are in young. When it is full, it
	// becomes old.
	young, old map[string]answer
}

// answer of an entry's conditions.
type answer struct {
	match   bool
	failure error
}

// entryIDs counts the entries, see entry.id.
var entryIDs atomic.Uint64

func newMemo() *memo { return &memo{young: map[string]answer{}} }

// matchConditions is that of the entry.
func (m *memo) matchConditions(e *entry, in *celInput) (match bool, failure error) {
	if len(e.conditions) == 0 {
		return true, nil
	}
	var space [memoText]byte
	key, ok := e.reads.key(space[:0], e.id, in)
	if !ok {
		return e.matchConditions(in)
	}
	if known, ok := m.get(key); ok {
		return known.match, known.failure
	}
	match, failure = e.matchConditions(in)
	m.put(string(key), answer{match, failure})
	return match, failure
}

func (m *memo) get(key []byte) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.young[string(key)]; ok {
		return known, true
	}
	known, ok := m.old[string(key)]
	if ok {
		m.add(string(key), known)
	}
	return known, ok
}

func (m *memo) put(key string, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(key, a)
}

func (m *memo) add(key string, a answer) {
	if len(m.young) >= memoSize {
		m.young, m.old = make(map[string]answer, memoSize), m.young
	}
	m.young[key] = a
}

// parts are what conditions read of a pod and its namespace.
type parts struct {
	labels, annotations, owners, namespace bool
	// more: something else, which may differ between the pods of an owner, or change.
	more bool
}

// add takes in what a program reads.
func (p *parts) add(program *cel.Program) {
	p.namespace = p.namespace || program.Uses(namespaceVariable)
	for _, variable := range []string{podVariable, hookPodVariable} {
		paths, whole := program.Reads(variable)
		p.more = p.more || whole
		for _, path := range paths {
			switch {
			case len(path) < 2 || path[0] != "metadata":
				p.more = true
			case path[1] == "labels":
				p.labels = true
			case path[1] == "annotations":
				p.annotations = true
			case path[1] == "ownerReferences":
				p.owners = true
			default:
				p.more = true
			}
		}
	}
}

// key appends what the answer of an entry depends on, so that no two inputs with another
// answer have the same. It reports whether the answer may be remembered.
func (p *parts) key(key []byte, entry uint64, in *celInput) ([]byte, bool) {
	if p.more || p.namespace && len(in.namespaceText) > memoText {
		return nil, false
	}
	key = binary.AppendUvarint(key, entry)
	if p.labels {
		key = appendMap(key, in.pod.Labels)
	}
	if p.annotations {
		size := 0
		for _, value := range in.pod.Annotations {
			size += len(value)
		}
		if size > memoText {
			return nil, false
		}
		key = appendMap(key, in.pod.Annotations)
	}
	if p.owners {
		key = binary.AppendUvarint(key, uint64(len(in.pod.OwnerReferences)))
		for i := range in.pod.OwnerReferences {
			o := &in.pod.OwnerReferences[i]
			key = appendText(key, o.APIVersion, o.Kind, o.Name, string(o.UID))
			key = append(key, optional(o.Controller), optional(o.BlockOwnerDeletion))
		}
	}
	if p.namespace {
		key = appendText(key, in.namespaceText)
	}
	return key, len(key) <= memoText
}

// textOf is all that expressions see of a namespace. It is not empty.
func textOf(namespace *corev1.Namespace) string {
	return string(appendMap(appendMap(appendText(nil, namespace.Name), namespace.Labels), namespace.Annotations))
}

// appendMap appends a map so that no two give the same bytes.
func appendMap(key []byte, m map[string]string) []byte {
	var space [16]string
	names := slices.AppendSeq(space[:0], maps.Keys(m))
	slices.Sort(names)
	key = binary.AppendUvarint(key, uint64(len(names)))
	for _, name := range names {
		key = appendText(key, name, m[name])
	}
	return key
}

// appendText appends texts with their lengths, so that they cannot run into each other.
func appendText(key []byte, texts ...string) []byte {
	for _, text := range texts {
		key = binary.AppendUvarint(key, uint64(len(text)))
		key = append(key, text...)
	}
	return key
}

// optional is a byte for each state of an optional bool.
func optional(value *bool) byte {
	switch {
	case value == nil:
		return 0
	case *value:
		return 1
	default:
		return 2
	}
}
