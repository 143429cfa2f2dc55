//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// serveLive answers as KubeVirt's webhook does for a VM that is evacuated already: it
// gets the pod and a custom object from the API server for every call, and denies. The
// custom object is the pod's EvictionRequest, which is smaller than a
// VirtualMachineInstance. Arguments: address, certificate, key, kubeconfig.
func serveLive(ctx context.Context) error {
	if len(os.Args) != 5 {
		return errors.New("want address, certificate, key and kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[4])
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	reader, err := client.New(unlimited(config), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return serveTLS(ctx, live(reader))
}

func live(reader client.Reader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review := &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(body, review); err != nil || review.Request == nil {
			http.Error(w, "want a review", http.StatusBadRequest)
			return
		}
		pod, evacuated := &corev1.Pod{}, &v1alpha1.EvictionRequest{}
		if err := reader.Get(r.Context(), client.ObjectKey{Namespace: review.Request.Namespace, Name: review.Request.Name}, pod); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err := reader.Get(r.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, evacuated); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"code":429,"message":%q}}}`,
			review.Request.UID, liveAnswer+evacuated.Namespace+"/"+evacuated.Name)
	}
}

// liveAnswer begins each denial of the stand-in.
const liveAnswer = "Evacuation in progress: "
