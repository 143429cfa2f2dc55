// Package certmanager runs Drawbridge beside cert-manager's real programs: controller,
// webhook and cainjector on the embedded control plane, under the accounts, with the
// permissions and with the arguments of their chart. They issue and rotate the certificate
// of our webhook while evictions are called.
//
// The programs are not part of this repository. DRAWBRIDGE_CERT_MANAGER names a folder
// with them; without it every test is skipped. hack/cert-manager/README.md says how to get
// one, and `make test-cert-manager CERT_MANAGER=CHECKOUT` runs the tests.
package certmanager
