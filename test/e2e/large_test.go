//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The webhook for evictions is Ignore by default, so an HTTP error of ours, whatever it
// is about, would let an eviction past the interceptors. How large a call is, or what it
// is made of, must not make one.
func TestALargeEvictionIsNotLetPastTheInterceptors(t *testing.T) {
	shareManager(t)
	const mebibyte = 1 << 20
	cases := map[string]struct {
		annotations func() map[string]string
		managed     string
	}{
		"1.2 MiB in one annotation":                {annotations: func() map[string]string { return map[string]string{"x": strings.Repeat("x", mebibyte*12/10)} }},
		"2.9 MiB in one annotation":                {annotations: func() map[string]string { return map[string]string{"x": strings.Repeat("x", mebibyte*29/10)} }},
		"1 MiB that JSON makes six times as large": {annotations: func() map[string]string { return map[string]string{"x": strings.Repeat("<", mebibyte)} }},
		"nesting below the depth at which the API server gives up": {
			managed: strings.Repeat(`{"f:a":`, 9_980) + `{}` + strings.Repeat(`}`, 9_980),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := kube.Namespace(t)
			pod := createPod(t, builder.Pod(namespace, "db-0").Interceptors("failover.example.com").Node(addNodes(t, namespace, 1)[0]).Obj())
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}}
			if tc.annotations != nil {
				eviction.Annotations = tc.annotations()
			}
			if tc.managed != "" {
				eviction.ManagedFields = []metav1.ManagedFieldsEntry{{
					Manager: "deep", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "policy/v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(tc.managed),
				}}
			}
			// A busy machine may need longer for megabytes than the API server waits for a webhook.
			// That is no HTTP error of ours, and the next call finds them less busy.
			eventually(t, "an answer in time", func(ctx context.Context) error {
				err := admin.SubResource("eviction").Create(ctx, pod, eviction.DeepCopy())
				if err != nil && strings.Contains(err.Error(), "context deadline exceeded") {
					return fmt.Errorf("cut off: %w", err)
				}
				if !apierrors.IsTooManyRequests(err) {
					t.Errorf("want 429, got: %.300v", err)
				}
				return nil
			})
			lives(t, pod)
		})
	}
}
