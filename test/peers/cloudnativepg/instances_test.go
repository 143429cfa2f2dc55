//go:build unix

package cloudnativepg

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	clusterLabel, podRoleLabel, roleLabel = "cnpg.io/cluster", "cnpg.io/podRole", "cnpg.io/instanceRole"
	// statusPort is where an instance manager says how its instance is.
	statusPort = "8000"
	// shutdown is how long a primary takes to shut down: longer than the operator takes to notice.
	shutdown = 8 * time.Second
)

var clusterKind = schema.GroupVersionKind{Group: "postgresql.cnpg.io", Version: "v1", Kind: "Cluster"}

// instances plays the instance managers in the pods of a namespace, and who provides its volumes. It
// does what internal/management/controller of CloudNativePG does about status.targetPrimary
// (reconcileOldPrimary, verifyPgDataCoherenceForPrimary, reconcilePrimary), and says at /pg/status
// what the operator reads there. PostgreSQL, its data and the primary's Lease are left out.
type instances struct {
	namespace string

	mu sync.Mutex
	// known are those whose Job has made them, by name: what is in their volumes outlives a pod.
	known map[string]*instance
	// clients have the permissions that the operator gives the pods, by cluster.
	clients map[string]client.Client
	err     error // The last one.
}

// instance is one of them.
type instance struct {
	cluster string
	// primary says that its data are a primary's.
	primary bool
	// up says that PostgreSQL runs, in the pod of the UID.
	up  bool
	pod types.UID
	// stops is when its shutdown ends; zero if it has none.
	stops time.Time
	// close ends its server; nil if it has none.
	close func() error
}

// playInstances plays them until the test ends.
func playInstances(t *testing.T, namespace string) *instances {
	t.Helper()
	in := &instances{namespace: namespace, known: map[string]*instance{}, clients: map[string]client.Client{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		steadily(ctx, func() {
			if err := in.step(ctx); err != nil && ctx.Err() == nil {
				in.mu.Lock()
				in.err = err // Much is not there yet, or has changed meanwhile.
				in.mu.Unlock()
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
		if t.Failed() {
			t.Logf("the last error of an instance manager: %v", in.err)
		}
		for _, i := range in.known {
			if i.close != nil {
				_ = i.close()
			}
		}
	})
	return in
}

// steadily plays a program that looks again and again, until the context ends.
func steadily(ctx context.Context, look func()) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			look()
		}
	}
}

// step looks at everything once.
func (in *instances) step(ctx context.Context) error {
	if err := in.provide(ctx); err != nil {
		return err
	}
	clusters := &unstructured.UnstructuredList{}
	clusters.SetGroupVersionKind(clusterKind.GroupVersion().WithKind("ClusterList"))
	if err := world.Client.List(ctx, clusters, client.InNamespace(in.namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range clusters.Items {
		pods := &corev1.PodList{}
		labels := client.MatchingLabels{clusterLabel: clusters.Items[i].GetName(), podRoleLabel: "instance"}
		if err := world.Client.List(ctx, pods, client.InNamespace(in.namespace), labels); err != nil {
			return err
		}
		for j := range pods.Items {
			if pod := &pods.Items[j]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				errs = append(errs, in.manage(ctx, &clusters.Items[i], pod))
			}
		}
		in.retire(clusters.Items[i].GetName(), pods.Items)
	}
	return errors.Join(errs...)
}

// provide makes a volume for each claim that has none.
func (in *instances) provide(ctx context.Context) error {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := world.Client.List(ctx, claims, client.InNamespace(in.namespace)); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Phase != corev1.ClaimPending || claim.Spec.VolumeName != "" {
			continue
		}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: in.namespace + "-" + claim.Name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/" + claim.Name}},
			ClaimRef:               &corev1.ObjectReference{Namespace: in.namespace, Name: claim.Name},
		}}
		if err := client.IgnoreAlreadyExists(world.Client.Create(ctx, volume)); err != nil {
			return err
		}
	}
	return nil
}

// retire ends the servers of pods that are gone.
func (in *instances) retire(cluster string, pods []corev1.Pod) {
	in.mu.Lock()
	defer in.mu.Unlock()
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = pods[i].DeletionTimestamp == nil
	}
	for _, i := range in.known {
		if i.cluster == cluster && i.close != nil && !there[i.pod] {
			_ = i.close()
			i.close, i.up = nil, false
		}
	}
}

// manage does what the instance manager in a pod does when its Cluster has changed.
func (in *instances) manage(ctx context.Context, of *unstructured.Unstructured, pod *corev1.Pod) error {
	target, _, _ := unstructured.NestedString(of.Object, "status", "targetPrimary")
	current, _, _ := unstructured.NestedString(of.Object, "status", "currentPrimary")
	in.mu.Lock()
	i := in.known[pod.Name]
	if i == nil { // The first is made by initdb, the others are copies of the primary.
		i = &instance{cluster: of.GetName(), primary: current == "" && target == pod.Name}
		in.known[pod.Name] = i
	}
	if i.pod != pod.UID {
		if i.close != nil { // At the address of the pod before.
			_ = i.close()
			i.close = nil
		}
		// An old primary waits for the end of the switchover before it starts.
		i.pod, i.up, i.stops = pod.UID, !i.primary || target == pod.Name, time.Time{}
	}
	switch {
	case i.primary && target != pod.Name && i.up && i.stops.IsZero():
		i.stops = time.Now().Add(shutdown) // A fast shutdown, after which the container is started again.
	case i.primary && target != pod.Name && i.up && time.Now().After(i.stops):
		i.up, i.stops = false, time.Time{}
	case i.primary && target != pod.Name && current == target:
		i.primary, i.up = false, true // pg_rewind, and it follows the new one.
	case !i.primary && target == pod.Name && !in.streams(i):
		i.primary = true // Nobody sends it anything any more: it is promoted.
	}
	isPrimary, up, serves := i.primary, i.up, i.close != nil
	in.mu.Unlock()

	if !serves {
		if err := in.serve(ctx, i, pod); err != nil {
			return err
		}
	}
	if isPrimary && target == pod.Name && current != pod.Name {
		status := map[string]any{"currentPrimary": pod.Name, "currentPrimaryTimestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
		if err := in.patchStatus(ctx, of, status); err != nil {
			return err
		}
	}
	return ready(ctx, pod, up)
}

// streams says whether another instance of the cluster is a primary that runs. The lock must be held.
func (in *instances) streams(of *instance) bool {
	for _, i := range in.known {
		if i != of && i.cluster == of.cluster && i.primary && i.up {
			return true
		}
	}
	return false
}

// ready makes a pod Ready or not, as the kubelet's probe would.
func ready(ctx context.Context, pod *corev1.Pod, up bool) error {
	value := any("false")
	if up {
		value = nil
	}
	if (pod.Annotations[cluster.ReadyAnnotation] == "false") == !up {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]any{cluster.ReadyAnnotation: value}}})
	if err != nil {
		return err
	}
	return world.Client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// patchStatus changes the status of a Cluster with the permissions of its pods.
func (in *instances) patchStatus(ctx context.Context, of *unstructured.Unstructured, status map[string]any) error {
	if in.clients[of.GetName()] == nil {
		config, err := world.Kube.ConfigForServiceAccount(ctx, in.namespace, of.GetName())
		if err != nil {
			return err
		}
		if in.clients[of.GetName()], err = client.New(config, client.Options{Scheme: cluster.Scheme()}); err != nil {
			return err
		}
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return in.clients[of.GetName()].Status().Patch(ctx, of.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// serve answers the operator at the pod's address, with the certificate that the operator has made.
func (in *instances) serve(ctx context.Context, i *instance, pod *corev1.Pod) error {
	secret := &corev1.Secret{}
	if err := world.Client.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: i.cluster + "-server"}, secret); err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("read the certificate of %s: %w", i.cluster, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(pod.Status.PodIP, statusPort))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: in.status(i, pod), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	in.mu.Lock()
	defer in.mu.Unlock()
	i.close = server.Close
	return nil
}

// status says how an instance is.
func (in *instances) status(i *instance, pod *corev1.Pod) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pg/status", func(w http.ResponseWriter, _ *http.Request) {
		in.mu.Lock()
		defer in.mu.Unlock()
		if !i.up {
			http.Error(w, "PostgreSQL does not run", http.StatusInternalServerError)
			return
		}
		const position = "0/3000060"
		says := map[string]any{
			"systemID": "7000000000000000000", "isPrimary": i.primary, "isWalReceiverActive": !i.primary && in.streams(i), "timeLineID": 1,
			"loadedConfigurationHash": "same", "executableHash": "same-as-any", "instanceManagerVersion": "1", "instanceArch": "amd64",
			"sessionID": string(pod.UID),
		}
		if i.primary {
			says["currentLsn"] = position
		} else {
			says["receivedLsn"], says["replayLsn"] = position, position
		}
		_ = json.NewEncoder(w).Encode(says)
	})
	return mux
}
