//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Limits of the chart, which the row must see obeyed.
const (
	hooksInCluster   = 50
	hooksInNamespace = 5
)

// jobPatience is longer than that of other rows: kube-controller-manager, which by default
// sends 20 requests a second, runs some five Jobs a second.
const jobPatience = 10 * time.Minute

// jobCounter sees how many Jobs are unfinished at a time.
type jobCounter struct {
	mu           sync.Mutex
	running      map[string]string // Namespace by name.
	made         map[string]bool
	most, mostIn int
}

func (c *jobCounter) see(event watch.EventType, object runtime.Object) bool {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[job.Namespace+"/"+job.Name] = true
	ended := event == watch.Deleted
	for _, condition := range job.Status.Conditions {
		ended = ended || (condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed))
	}
	if ended {
		delete(c.running, job.Namespace+"/"+job.Name)
		return false
	}
	c.running[job.Namespace+"/"+job.Name] = job.Namespace
	c.most = max(c.most, len(c.running))
	in := 0
	for _, namespace := range c.running {
		if namespace == job.Namespace {
			in++
		}
	}
	c.mostIn = max(c.mostIn, in)
	return false
}

// measureHooks: pods of 20 nodes, in ten namespaces with a hook each, whose Job takes a
// second.
func measureHooks(ctx context.Context, e *env) error {
	const namespaces, nodes = 10, 20
	perPair := e.size(5, 1)
	n := namespaces * nodes * perPair
	for i := range nodes {
		if err := e.cluster.AddNode(ctx, fmt.Sprintf("hooks-%d", i)); err != nil {
			return err
		}
	}
	if err := e.startManager(ctx); err != nil {
		return err
	}
	counter := &jobCounter{running: map[string]string{}, made: map[string]bool{}}
	var pods []*corev1.Pod
	var jobs, gone []*following
	for i := range namespaces {
		namespace := fmt.Sprintf("hooks-%d", i)
		if err := e.crs.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
		hook := builder.EvacuationHook(namespace, "dump").Pods("bench", "hook").Job(`{"spec": {"template": {
			"metadata": {"annotations": {"` + cluster.CompleteAfterAnnotation + `": "1s"}},
			"spec": {"restartPolicy": "Never", "containers": [{"name": "dump", "image": "dump"}]}}}}`)
		if err := e.crs.Create(ctx, hook.Obj()); err != nil {
			return fmt.Errorf("create hook: %w", err)
		}
		made, err := e.makePods(ctx, namespace, "", nodes*perPair, func(i int, w *builder.PodWrapper) {
			w.Node(fmt.Sprintf("hooks-%d", i%nodes)).Label("bench", "hook")
		})
		if err != nil {
			return err
		}
		pods = append(pods, made...)
		watched, err := e.follow(ctx, namespace, &batchv1.Job{}, n+1, counter.see)
		if err != nil {
			return err
		}
		jobs = append(jobs, watched)
		left, err := e.follow(ctx, namespace, &corev1.Pod{}, nodes*perPair, func(event watch.EventType, object runtime.Object) bool {
			pod, ok := object.(*corev1.Pod)
			return ok && event == watch.Deleted && pod.Labels["bench"] == "hook"
		})
		if err != nil {
			return err
		}
		gone = append(gone, left)
	}
	mark := e.cluster.RequestLog().Mark()
	begun := time.Now()
	err := inParallel(ctx, len(pods), callers, func(ctx context.Context, i int) error {
		if err := e.evict(ctx, pods[i]); err != nil && !apierrors.IsTooManyRequests(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, left := range gone {
		err = errors.Join(err, left.waitFor(ctx, "the pods with a hook to go", jobPatience))
	}
	took := time.Since(begun)
	for _, watched := range jobs {
		watched.stop()
	}
	if err != nil {
		return err
	}
	ours, err := e.ourRequests(ctx, mark)
	if err != nil {
		return err
	}
	stored := ours.Where(func(r cluster.Request) bool {
		return r.Writes() && r.Resource != "events" && r.Resource != "leases" && r.Code < http.StatusBadRequest
	})
	counter.mu.Lock()
	defer counter.mu.Unlock()
	e.table.add(line{what: fmt.Sprintf("%d pods of %d nodes with a hook, from the first call to the last pod gone", n, nodes), ours: seconds(took)})
	e.table.add(line{what: "Jobs made for them", ours: fmt.Sprint(len(counter.made)), goal: fmt.Sprintf("%d", n), met: new(len(counter.made) == n)})
	e.table.add(line{
		what: "most Jobs at a time, in the cluster and in a namespace", ours: fmt.Sprintf("%d and %d", counter.most, counter.mostIn),
		goal: fmt.Sprintf("<= %d and %d", hooksInCluster, hooksInNamespace), met: new(counter.most <= hooksInCluster && counter.mostIn <= hooksInNamespace),
	})
	e.table.add(line{what: "our API writes for each of them", ours: fmt.Sprintf("%.1f", float64(len(stored))/float64(n))})
	return nil
}
