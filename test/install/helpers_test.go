package install_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// createPod creates a pod as soon as its namespace is ready for it.
func createPod(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	var created *corev1.Pod
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		created, last = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("create pod: %w: %w", err, last)
	}
	return created, nil
}

// testCA is a certificate; the API server takes no CA that is none.
const testCA = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUecjisbCAt9X+0YeOYm05ZQPmQk0wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjEwMTIwMDNaGA8yMTI2MTAyODAxMjAw
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDH2
R0uoNaqql7PLdQkcSceijICOM70UShvEctD+DsJXSNvW7ChwdazpJUmgahRqJcXd
dYOqH9twbFK3JL+RiBCjUzBRMB0GA1UdDgQWBBS3jxs4Chbw/RgB4gDJ/xUen7AM
GjAfBgNVHSMEGDAWgBS3jxs4Chbw/RgB4gDJ/xUen7AMGjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIElTQD+/By2OHkTd1+A0iTimWU+mROh/rg8/
mJdN4mqeAiEA4g2BDfa3ZXS186dMzkJ0MIWGdxh6JmTAKUounNVixDg=
-----END CERTIFICATE-----
`
