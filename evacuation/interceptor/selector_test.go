package interceptor

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// noted notes what it is asked to do.
type noted struct{ calls []string }

func (n *noted) Evacuate(context.Context, Target) (Progress, error) {
	n.calls = append(n.calls, "Evacuate")
	return Progress{Message: "copying"}, nil
}

func (n *noted) Cancel(context.Context, Target) error {
	n.calls = append(n.calls, "Cancel")
	return nil
}

// Several processes share the pods of one interceptor. What one of them has begun
// is not taken up by another that starts, and not undone by it.
func TestSDKLeavesToOthersWhatItDoesNotSelect(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		request *builder.EvictionRequestWrapper
		want    string
	}{
		"nobody has begun":   {newRequest(), "Evacuate"},
		"another works":      {newRequest().Started(ourName, at(0)), "Evacuate"},
		"it was canceled":    {newRequest().Started(ourName, at(0)).Canceled(v1alpha1.ReasonNoRequesters, at(1)), "Cancel"},
		"it was passed over": {newRequest().Started(ourName, at(0)).Processed(ourName).Active(otherName, at(1)), "Cancel"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for shard, want := range map[string]int{"a": 1, "b": 0} {
				er := tc.request.Clone().Obj()
				er.Labels = map[string]string{"shard": "a"}
				noted := &noted{}
				r := newBench(t, &fakeCluster{cached: er, stored: er}, noted)
				r.Selector = labels.SelectorFromSet(labels.Set{"shard": shard})
				if _, err := mustLook(t, r); err != nil {
					t.Fatal(err)
				}
				if len(noted.calls) != want || (want == 1 && noted.calls[0] != tc.want) {
					t.Errorf("the process of shard %s was asked to %v, want %d times %s", shard, noted.calls, want, tc.want)
				}
			}
		})
	}
}

// A label that changes under its hands does not make it drop its work.
func TestSDKKeepsWhatItHasBegun(t *testing.T) {
	t.Parallel()
	er := newRequest().Obj()
	er.Labels = map[string]string{"shard": "a"}
	noted := &noted{}
	c := &fakeCluster{cached: er, stored: er}
	r := newBench(t, c, noted)
	r.Selector = labels.SelectorFromSet(labels.Set{"shard": "a"})
	for range 2 {
		if _, err := mustLook(t, r); err != nil {
			t.Fatal(err)
		}
		c.cached = er.DeepCopy()
		c.cached.Labels["shard"] = "b"
	}
	if len(noted.calls) != 2 {
		t.Errorf("asked to %v, want Evacuate twice", noted.calls)
	}
}
