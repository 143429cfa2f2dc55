package execcall

import (
	"io"
	"sync"

	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// tail is a ring that keeps the end of what is written to it, by any number of
// goroutines.
type tail struct {
	mu   sync.Mutex
	ring []byte
	// next is where the next byte goes.
	next int
	// full says that the ring has been filled once.
	full bool
}

var _ io.Writer = &tail{}

func newTail(size int) *tail { return &tail{ring: make([]byte, size)} }

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	written := len(data)
	if len(data) > len(t.ring) {
		data = data[len(data)-len(t.ring):]
	}
	for len(data) > 0 {
		n := copy(t.ring[t.next:], data)
		data = data[n:]
		t.next += n
		if t.next == len(t.ring) {
			t.next, t.full = 0, true
		}
	}
	return written, nil
}

// String returns what is kept. A character whose beginning is lost is left out.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.ring[:t.next]
	if t.full {
		kept = append(append([]byte{}, t.ring[t.next:]...), kept...)
	}
	return text.Tail(kept, len(t.ring))
}
