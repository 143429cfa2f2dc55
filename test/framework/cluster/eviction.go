package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Eviction of a pod as kubectl drain sends it: by name.
func Eviction(pod *corev1.Pod) *policyv1.Eviction {
	return &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{},
	}
}

// PostEviction posts an Eviction as a user of a plain HTTP client: nothing is retried and
// nothing hidden. It returns the answer.
func (c *Cluster) PostEviction(tb testing.TB, pod *corev1.Pod, body any, user string, groups ...string) (int, http.Header, []byte) {
	tb.Helper()
	config := Must(c.ConfigFor(user, groups...))(tb)
	caller := Must(rest.HTTPClientFor(config))(tb)
	content := Must(json.Marshal(body))(tb)
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/eviction", config.Host, pod.Namespace, pod.Name)
	request := Must(http.NewRequestWithContext(tb.Context(), http.MethodPost, url, bytes.NewReader(content)))(tb)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kubectl/v1.37.1")
	response, err := caller.Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		tb.Fatal(err)
	}
	return response.StatusCode, response.Header, got
}
