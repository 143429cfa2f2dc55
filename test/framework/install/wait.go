package install

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// WaitReady waits until the API of the chart is served and its admission policies
// are enforced; an API server takes a second or two to notice a new policy. It does
// not wait for a manager. The user of config must be allowed to create pods in the
// namespace "default", where a dry run tells whether the policies are in force.
// Error: ctx ended first, or nothing changed for three minutes; it names what was missing and why.
func WaitReady(ctx context.Context, config *rest.Config) error {
	extensions, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}

	const crd = "evictionrequests." + v1alpha1.GroupName
	err = waiting.For(ctx, "CustomResourceDefinition "+crd, func(ctx context.Context) error {
		got, err := extensions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, crd, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("not established")
	})
	if err != nil {
		return err
	}

	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "drawbridge-policy-probe",
			Annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "not a domain name"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	}
	return waiting.For(ctx, "ValidatingAdmissionPolicy "+podPolicy, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return fmt.Errorf("a malformed annotation is still accepted")
		case strings.Contains(err.Error(), podPolicy):
			return nil
		}
		return err
	})
}

// podPolicy is the policy whose effect shows in a dry run. API servers take up all
// policies together.
const podPolicy = "pod-interceptors." + v1alpha1.GroupName
