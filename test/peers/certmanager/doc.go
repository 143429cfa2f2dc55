// Package certmanager runs Drawbridge beside cert-manager's real programs: controller,
// webhook and cainjector on the embedded control plane, under the accounts, with the
// permissions and with the arguments of their chart. They issue and rotate the certificate
// of our webhook while evictions are called.
//
// The programs are not part of this repository; without them every test is skipped.
// `make test-peers PEER=cert-manager CHECKOUT=FOLDER` builds them and runs the tests.
package certmanager
