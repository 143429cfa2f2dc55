//go:build unix

package preemption

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// ignorable: true.
func TestWhileTheExtenderIsDownTheSchedulerGoesOnAsBefore(t *testing.T) {
	s := scenery(t, 1) // Not parallel: nobody else may need the manager.
	s.full("1000")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := manager.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := startManager(ctx); err != nil {
			t.Fatal(err)
		}
	})
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
