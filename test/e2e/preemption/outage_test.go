//go:build unix

package preemption

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// ignorable: true.
func TestWhileTheExtenderIsDownTheSchedulerGoesOnAsBefore(t *testing.T) {
	s := scenery(t, 1) // Not parallel: nobody else may need the manager.
	s.full("1000")
	stopManager(t)
	t.Cleanup(func() { restartManager(t) })
	s.running(s.pod("preemptor", s.class("high", 999, "")))
}

// With a token for the certificate, and whole pods for UIDs.
func TestTheSchedulerMaySendATokenAndWholePods(t *testing.T) {
	s := scenery(t, 2)
	victims := s.full("1000")
	if err := kube.ConfigureScheduler(t.Context(), tokenSchedulerConfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		config, err := schedulerConfig()
		if err != nil {
			t.Fatal(err)
		}
		if err := kube.ConfigureScheduler(context.Background(), config); err != nil {
			t.Fatal(err)
		}
	})
	high := s.class("high", 999, "")
	var filler []*corev1.Pod
	for _, name := range []string{"filler-1", "filler-2"} {
		filler = append(filler, s.running(s.pod(name, high)))
	}
	preemptor := s.pod("preemptor", high)
	s.pending(preemptor)
	s.told(preemptor)
	s.lives(append(victims, filler...)...)
}

// As on API servers without MutatingAdmissionPolicies.
func TestWithoutStampsTheClassAsItIsNowDecides(t *testing.T) {
	s := scenery(t, 1)
	stopManager(t)
	if err := startManager(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopManager(t)
		restartManager(t)
	})
	low := s.class("low", 100, "")
	victims := []*corev1.Pod{s.running(s.pod("web-1", low, labeled("web"))), s.running(s.pod("web-2", low, labeled("web")))}
	s.budget("web", "2", 0)
	if err := admin.Patch(t.Context(), low, annotate("1000")); err != nil {
		t.Fatal(err)
	}
	preemptor := builder.Pod(s.namespace, "asked-for").UID("u").Priority("high", 999).Obj()
	eventually(t, "the class to count", func(context.Context) error {
		if code, nodes := s.ask(schedulerUser, preempting(preemptor, s.nodes[0], victims[0])); code != http.StatusOK || len(nodes) != 0 {
			return fmt.Errorf("HTTP %d, nodes %v", code, nodes)
		}
		return nil
	})
	waiting := s.pod("preemptor", s.class("high", 999, ""))
	s.pending(waiting)
	s.told(waiting)
	s.lives(victims...)
	if err := admin.Patch(t.Context(), low, annotate("null")); err != nil {
		t.Fatal(err)
	}
	s.running(waiting)
}

// stopManager and restartManager are for tests that are not parallel. They work in a
// Cleanup, too, where the test's own context has ended.
func stopManager(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := running.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func restartManager(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := startManager(ctx, true); err != nil {
		t.Fatal(err)
	}
}
