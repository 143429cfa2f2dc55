package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// tokenLifetime of service account tokens, in seconds: longer than any test run.
const tokenLifetime = 24 * 60 * 60

// Config is a copy of the configuration of the user "admin", who may do everything
// (group system:masters). It has no rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// ConfigFor is the configuration of a user of these groups, with a certificate from
// the cluster's authority: kube-apiserver sees a real user, not an impersonated
// one. What that user may do is up to RBAC. It has no rate limit.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	return c.configFor(c.admin.Host, user, groups...)
}

func (c *Cluster) configFor(host, user string, groups ...string) (*rest.Config, error) {
	certificate, key, err := c.authority.client(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: host,
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.authority.certPEM,
			CertData: certificate,
			KeyData:  key,
		},
	}, nil
}

// ConfigForServiceAccount is the configuration of a ServiceAccount, with a token of
// the TokenRequest API that is good for a day. The ServiceAccount is created if it
// is not there; the namespace must be.
func (c *Cluster) ConfigForServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenLifetime)},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account %s/%s: %w", namespace, name, err)
	}
	return &rest.Config{
		Host:            c.admin.Host,
		QPS:             -1,
		BearerToken:     token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certPEM},
	}, nil
}

// KubeconfigFile returns the path of a kubeconfig file for [Cluster.ConfigFor] of
// this user and these groups. The file goes with the cluster.
func (c *Cluster) KubeconfigFile(user string, groups ...string) (string, error) {
	c.kubeconfigs.Lock()
	defer c.kubeconfigs.Unlock()
	key := strings.Join(append([]string{user}, groups...), "\n")
	if path, ok := c.kubeconfigFor[key]; ok {
		return path, nil
	}
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return "", err
	}
	path, err := c.writeKubeconfig(key, user, "", config)
	if err != nil {
		return "", err
	}
	c.kubeconfigFor[key] = path
	return path, nil
}

// KubeconfigFileForServiceAccount returns the path of a new kubeconfig file for
// [Cluster.ConfigForServiceAccount]; its default namespace is the account's. The
// file goes with the cluster.
func (c *Cluster) KubeconfigFileForServiceAccount(ctx context.Context, namespace, name string) (string, error) {
	config, err := c.ConfigForServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	c.kubeconfigs.Lock()
	defer c.kubeconfigs.Unlock()
	return c.writeKubeconfig(config.BearerToken, namespace+"-"+name, namespace, config)
}

func (c *Cluster) writeKubeconfig(key, user, namespace string, config *rest.Config) (string, error) {
	const name = "drawbridge-test"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: namespace}
	kubeconfig.CurrentContext = name
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return "", fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	hash := sha256.Sum256([]byte(key)) // Users may differ in what a file name cannot show.
	path := filepath.Join(c.dir, "kubeconfig", dnsLabel(user, 60)+"-"+hex.EncodeToString(hash[:4])+".yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

// waitServiceAccount waits for what kube-controller-manager adds to a namespace:
// without its default ServiceAccount no pod can be created there.
func (c *Cluster) waitServiceAccount(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not there after %s", bootTimeout))
	defer cancel()
	return waiting.For(ctx, "service account "+namespace+"/"+name, func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		return err // Anything may fail while components are killed.
	})
}

// EtcdURL is where etcd serves its clients, without TLS and without a password, for what cannot be
// done through kube-apiserver.
func (c *Cluster) EtcdURL() string { return c.etcd }

// LetDrain gives a group what kubectl drain needs, and nothing more.
func (c *Cluster) LetDrain(ctx context.Context, group string) error {
	meta := metav1.ObjectMeta{Name: group}
	_, err := c.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role of %s: %w", group, err)
	}
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: group},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role of %s: %w", group, err)
	}
	return nil
}
