package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// WithNative is a copy of the options with the native API of KEP-4563, lifecycle.k8s.io/v1alpha1,
// which Kubernetes serves since 1.37 behind a feature gate.
func (o Options) WithNative() Options {
	o.FeatureGates = with(o.FeatureGates, "EvictionRequestAPI", true)
	o.RuntimeConfig = with(o.RuntimeConfig, lifecyclev1alpha1.SchemeGroupVersion.String(), "true")
	return o
}

// ServeNative restarts a cluster's API server with or without that API, and returns when it is
// ready. What is stored stays, and pods keep spec.evictionResponders. The options have to be
// those of WithNative.
func (c *Cluster) ServeNative(ctx context.Context, serve bool) error {
	c.options.RuntimeConfig = with(c.options.RuntimeConfig, lifecyclev1alpha1.SchemeGroupVersion.String(), strconv.FormatBool(serve))
	server := c.components[APIServer]
	for i, arg := range server.args {
		if strings.HasPrefix(arg, "--runtime-config=") {
			server.args[i] = "--runtime-config=" + joinMap(c.options.RuntimeConfig)
		}
	}
	return server.Restart(ctx)
}

func with[V any](values map[string]V, key string, value V) map[string]V {
	values = maps.Clone(values)
	if values == nil {
		values = map[string]V{}
	}
	values[key] = value
	return values
}

// Age moves every time in the stored Eviction into the past, as if all that has happened to it had
// happened earlier by so much. A test cannot wait for the 20 minutes after which kube-apiserver lets
// a silent responder be interrupted: kube-apiserver goes by its own clock and accepts no time that is
// not within 30 seconds of it. So this writes to etcd, beside kube-apiserver; whoever watches sees the
// Eviction changed. Only its namespace, name and, if set, UID matter of the given one. What others
// write at the same time is not lost.
// Error: there is no such Eviction, or ctx has ended.
func (c *Cluster) Age(ctx context.Context, eviction *lifecyclev1alpha1.Eviction, by time.Duration) error {
	return waiting.For(ctx, "the times of Eviction "+eviction.Namespace+"/"+eviction.Name+" to move", func(ctx context.Context) error {
		return c.age(ctx, eviction, "", by)
	})
}

// AgeVersion is Age of that version of the Eviction and of no other, once.
// Error: it has another version by now, there is none, or etcd does not answer.
func (c *Cluster) AgeVersion(ctx context.Context, eviction *lifecyclev1alpha1.Eviction, by time.Duration) error {
	return c.age(ctx, eviction, eviction.ResourceVersion, by)
}

// errAgain says that somebody else has written between a read and a write.
var errAgain = errors.New("changed in the meantime")

// age moves the times once, of any version or of that one.
func (c *Cluster) age(ctx context.Context, eviction *lifecyclev1alpha1.Eviction, version string, by time.Duration) error {
	key := []byte("/registry/evictions/" + eviction.Namespace + "/" + eviction.Name)
	var read struct {
		KVs []struct {
			Value       []byte `json:"value"`
			ModRevision string `json:"mod_revision"`
		} `json:"kvs"`
	}
	if err := AskEtcd(ctx, c.etcd, "kv/range", map[string]any{"key": key}, &read); err != nil {
		return err
	}
	if len(read.KVs) != 1 {
		return waiting.InVain(errors.New("etcd has no such Eviction"))
	}
	if version != "" && version != read.KVs[0].ModRevision { // They are the same to kube-apiserver.
		return errAgain
	}
	// The serializer neither converts nor sets defaults: what is written is what was read.
	serializer := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	stored := &lifecyclev1alpha1.Eviction{}
	if _, _, err := serializer.Decode(read.KVs[0].Value, nil, stored); err != nil {
		return waiting.InVain(fmt.Errorf("decode what etcd has: %w", err))
	}
	if eviction.UID != "" && eviction.UID != stored.UID {
		return waiting.InVain(fmt.Errorf("etcd has the one with UID %s, not %s", stored.UID, eviction.UID))
	}
	stored.APIVersion, stored.Kind = lifecyclev1alpha1.SchemeGroupVersion.String(), "Eviction"
	moveTimes(stored, -by)
	var aged bytes.Buffer
	if err := serializer.Encode(stored, &aged); err != nil {
		return waiting.InVain(fmt.Errorf("encode: %w", err))
	}
	type object = map[string]any
	var written struct{ Succeeded bool }
	err := AskEtcd(ctx, c.etcd, "kv/txn", object{
		"compare": []object{{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": read.KVs[0].ModRevision}},
		"success": []object{{"requestPut": object{"key": key, "value": aged.Bytes()}}},
	}, &written)
	if err == nil && !written.Succeeded {
		err = errAgain
	}
	return err
}

// moveTimes moves all that are set.
func moveTimes(eviction *lifecyclev1alpha1.Eviction, by time.Duration) {
	times := []*metav1.Time{&eviction.CreationTimestamp, eviction.DeletionTimestamp}
	for i := range eviction.ManagedFields {
		times = append(times, eviction.ManagedFields[i].Time)
	}
	for i := range eviction.Status.Conditions {
		times = append(times, &eviction.Status.Conditions[i].LastTransitionTime)
	}
	for i := range eviction.Status.Responders {
		r := &eviction.Status.Responders[i]
		times = append(times, r.StartTime, r.HeartbeatTime, r.ExpectedCompletionTime, r.CompletionTime)
	}
	for _, t := range times {
		if !t.IsZero() {
			t.Time = t.Add(by)
		}
	}
}
