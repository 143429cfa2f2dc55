package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// SelfTestOptions configure what `helm test` runs: a check of an installation from
// outside.
type SelfTestOptions struct {
	// WebhookConfiguration is the one to check; empty if there is none.
	WebhookConfiguration string
	// Namespace is where an eviction is tried. The webhook must be called for it.
	Namespace string
	// Timeout of the whole test.
	Timeout time.Duration
}

// newSelfTestCommand returns the command line of the self-test.
func newSelfTestCommand() *cobra.Command {
	o := SelfTestOptions{WebhookConfiguration: "drawbridge", Namespace: metav1.NamespaceDefault, Timeout: time.Minute}
	cmd := &cobra.Command{
		Use:   "self-test",
		Short: "Check an installation from inside the cluster, without changing anything",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			return SelfTest(cmd.Context(), conf, o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.WebhookConfiguration, "webhook-configuration", o.WebhookConfiguration, "ValidatingWebhookConfiguration to check; empty if there is none.")
	cmd.Flags().StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace in which to evict, as a dry run, a pod that does not exist.")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "How long all checks together may take.")
	return cmd
}

// SelfTest checks that the API is served, that the webhook answers with a certificate
// that API servers trust, and that an eviction gets through, and writes what it found.
// The error is the first problem, with its remedy.
func SelfTest(ctx context.Context, conf *rest.Config, o SelfTestOptions, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	clients, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"the API " + v1alpha1.SchemeGroupVersion.String() + " is served", func() error { return servesAPI(clients) }},
		{"the webhook answers under a certificate that API servers trust", func() error { return webhookAnswers(ctx, clients, o.WebhookConfiguration) }},
		{"an eviction gets through to the registry (a dry run of a pod that does not exist)", func() error { return evictionPasses(ctx, clients, o.Namespace) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("not true that %s: %w", step.what, err)
		}
		if _, err := fmt.Fprintln(out, "ok:", step.what); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

func servesAPI(clients kubernetes.Interface) error {
	list, err := clients.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return fmt.Errorf("%w; install the CustomResourceDefinitions (value crds.enabled)", err)
	}
	served := map[string]bool{}
	for _, resource := range list.APIResources {
		served[resource.Name] = true
	}
	for _, name := range []string{"evictionrequests", "evictionrequests/status", "evictioninterceptors", "evacuationpolicies", "evacuationhooks", "evictionbudgets", "nodemaintenances"} {
		if !served[name] {
			return fmt.Errorf("%s are not; upgrade the CustomResourceDefinitions", name)
		}
	}
	return nil
}

// webhookAnswers calls every webhook of the configuration as an API server does.
func webhookAnswers(ctx context.Context, clients kubernetes.Interface, name string) error {
	if name == "" {
		return nil
	}
	webhooks, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get webhook configuration: %w", err)
	}
	for _, webhook := range webhooks.Webhooks {
		if err := reach(ctx, webhook.ClientConfig); err != nil {
			return fmt.Errorf("webhook %s: %w; see docs/runbooks/webhook-down.md", webhook.Name, err)
		}
	}
	return nil
}

// reach makes one HTTPS call. Any answer is good.
func reach(ctx context.Context, to admissionregistrationv1.WebhookClientConfig) (err error) {
	if len(to.CABundle) == 0 {
		return errors.New("the configuration has no CA: is there a leader to put it in?")
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(to.CABundle) {
		return errors.New("the CA in the configuration cannot be read")
	}
	target, err := endpoint(to)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return fmt.Errorf("make call: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	return response.Body.Close()
}

// endpoint is the URL of a webhook.
func endpoint(to admissionregistrationv1.WebhookClientConfig) (string, error) {
	switch {
	case to.URL != nil:
		return *to.URL, nil
	case to.Service != nil:
		port, path := int32(443), "/"
		if to.Service.Port != nil {
			port = *to.Service.Port
		}
		if to.Service.Path != nil {
			path = *to.Service.Path
		}
		host := net.JoinHostPort(to.Service.Name+"."+to.Service.Namespace+".svc", strconv.Itoa(int(port)))
		return (&url.URL{Scheme: "https", Host: host, Path: path}).String(), nil
	}
	return "", errors.New("the configuration has neither a Service nor a URL")
}

// evictionPasses tries an eviction that the API server answers with "not found" if
// nothing blocks it.
func evictionPasses(ctx context.Context, clients kubernetes.Interface, namespace string) error {
	err := clients.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: "drawbridge-self-test"},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("want the answer that there is no such pod, have: %w", err)
}
