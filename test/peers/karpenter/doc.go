// Package karpenter runs Drawbridge beside the real Karpenter, with its own provider for
// kwok: on the embedded control plane, under the account and with the permissions of its
// chart. Karpenter makes the nodes, and drains and removes them again. What happens to the
// pods is compared with what happens without Drawbridge.
//
// The program is not part of this repository; without it every test is skipped.
// `make test-peers PEER=karpenter CHECKOUT=FOLDER` builds it and runs the tests.
package karpenter
