package dashboard

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
)

const (
	// storyFresh is how old a story may be: one costs a dozen calls, and a page that is open
	// asks after every change.
	storyFresh = 2 * time.Second
	// maxStories are kept.
	maxStories = 64
)

// backend asks the cluster.
type backend struct {
	clock clock.PassiveClock
	tell  func(ctx context.Context, namespace, pod string) (why.Story, error)

	flight singleflight.Group
	mu     sync.Mutex
	kept   map[string]told
}

// told is a story, or why there is none, and of when.
type told struct {
	story why.Story
	err   error
	at    time.Time
}

var _ page.Backend = &backend{}

func newBackend(o *cli.Options, c *cli.Connection) *backend {
	return &backend{clock: o.Clock, kept: map[string]told{}, tell: func(ctx context.Context, namespace, pod string) (why.Story, error) {
		of := *c
		of.Namespace = namespace
		facts, err := why.Gather(ctx, o, &of, pod)
		if err != nil {
			return why.Story{}, err
		}
		return why.Tell(*facts), nil
	}}
}

// Why implements page.Backend.
func (b *backend) Why(ctx context.Context, namespace, pod string) (why.Story, error) {
	key := namespace + "/" + pod
	if t, ok := b.recent(key); ok {
		return t.story, t.err
	}
	// Several pages may ask at once, and whoever leaves first must not take the others along.
	answer := b.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CallTimeout)
		defer cancel()
		t := told{}
		t.story, t.err = b.tell(ctx, namespace, pod)
		t.at = b.clock.Now()
		b.keep(key, t)
		return t, nil
	})
	select {
	case got := <-answer:
		t, _ := got.Val.(told)
		return t.story, t.err
	case <-ctx.Done():
		return why.Story{}, ctx.Err() //nolint:wrapcheck // The browser has left.
	}
}

func (b *backend) recent(key string) (told, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.kept[key]
	return t, ok && b.clock.Since(t.at) < storyFresh
}

func (b *backend) keep(key string, t told) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for old := range b.kept {
		if len(b.kept) >= maxStories || b.clock.Since(b.kept[old].at) >= storyFresh {
			delete(b.kept, old)
		}
	}
	b.kept[key] = t
}
