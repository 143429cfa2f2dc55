//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// perCopy is how many pods one transaction of etcd takes: it allows 128 operations and 1.5 MiB.
const perCopy = 64

// put is an operation of etcd's JSON gateway; []byte is base64 in JSON.
type put struct {
	Put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"requestPut"`
}

// copyPods puts n pods like one that the API server has stored into etcd, beside the API server.
// They are as real as others to everybody who watches pods. To create 150,000 of them would take a
// quarter of an hour of the API server's time, and is not what is measured. change names them. What is
// returned is no more than their names and UIDs.
func (e *env) copyPods(ctx context.Context, like *corev1.Pod, n int, change func(i int, pod *corev1.Pod)) ([]*corev1.Pod, error) {
	encoder := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	pods := make([]*corev1.Pod, n)
	err := inParallel(ctx, (n+perCopy-1)/perCopy, callers, func(ctx context.Context, batch int) error {
		var puts []put
		for i := batch * perCopy; i < min(n, (batch+1)*perCopy); i++ {
			pod := like.DeepCopy()
			pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			pod.ResourceVersion, pod.UID = "", uuid.NewUUID()
			change(i, pod)
			var stored bytes.Buffer
			if err := encoder.Encode(pod, &stored); err != nil {
				return fmt.Errorf("encode pod: %w", err)
			}
			one := put{}
			one.Put.Key, one.Put.Value = []byte("/registry/pods/"+pod.Namespace+"/"+pod.Name), stored.Bytes()
			puts = append(puts, one)
			pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
		}
		return commit(ctx, e.cluster.EtcdURL(), puts)
	})
	return pods, err
}

// copyPatience bounds how long one transaction is tried, copyPause is between two tries.
const (
	copyPatience = 5 * time.Minute
	copyPause    = time.Second
)

// commit is one transaction of etcd at an address. It is tried again: etcd refuses what it cannot
// write in some seconds, as it may while the API server reads 150,000 pods on the same CPUs. To put
// the same pods a second time does no harm.
func commit(ctx context.Context, address string, puts []put) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, copyPause, copyPatience, true, func(ctx context.Context) (bool, error) {
		last = try(ctx, address, puts)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last) // There was no try if ctx had ended before.
	}
	return nil
}

// try is one try of a transaction.
func try(ctx context.Context, address string, puts []put) error {
	// Not answered by 200 alone: a transaction says whether it succeeded.
	result := struct{ Succeeded bool }{}
	if err := cluster.AskEtcd(ctx, address, "kv/txn", map[string]any{"success": puts}, &result); err != nil {
		return err
	}
	if !result.Succeeded {
		return fmt.Errorf("etcd wrote none of %d pods", len(puts))
	}
	return nil
}
