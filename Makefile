# `make help` prints the targets. Tools are pinned in go.tools*.mod, one module each
# where their dependencies clash, and are built by the go command when first used.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.DEFAULT_GOAL := help

CONTROLLER_GEN := go tool -modfile=go.tools.mod controller-gen
GOLANGCI_LINT := go tool -modfile=go.tools.lint.mod golangci-lint
HELM := go tool -modfile=go.tools.helm.mod helm

BOILERPLATE := hack/boilerplate.go.txt
CHART := charts/drawbridge

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: generate
generate: generate-api generate-docs ## Write all generated files.

.PHONY: generate-api
generate-api: ## Write deepcopy functions, apply configurations and CRDs.
	rm -rf api/v1alpha1/applyconfiguration $(CHART)/files/crds
	$(CONTROLLER_GEN) object:headerFile=$(BOILERPLATE) paths=./api/v1alpha1
	$(CONTROLLER_GEN) crd paths=./api/v1alpha1 output:crd:artifacts:config=$(CHART)/files/crds
	$(CONTROLLER_GEN) applyconfiguration:headerFile=$(BOILERPLATE) paths=./api/v1alpha1

.PHONY: generate-docs
generate-docs: ## Write the pages of docs/ that come from the sources.
	mkdir -p docs
	go run ./test/conformance/statements/gen

.PHONY: verify
verify: verify-generate verify-chart ## Check what must not go stale; changes nothing.

.PHONY: verify-generate
verify-generate: ## Check that the generated files are up to date.
	hack/verify-generate.sh

.PHONY: verify-chart
verify-chart: ## Check the chart with helm's own linter.
	$(HELM) lint --strict --quiet $(CHART)

.PHONY: lint
lint: ## Check the Go sources; `make lint-fix` repairs what can be repaired.
	$(GOLANGCI_LINT) run ./...

.PHONY: lint-fix
lint-fix: ## Format the Go sources and repair findings of the linter.
	$(GOLANGCI_LINT) run --fix ./...

.PHONY: demo
demo: ## Show the main job on an embedded control plane (the first time builds it: 10 to 15 minutes).
	@echo "Building the demo; a control plane, helm and the manager follow the first time."
	@go build -o bin/demo ./test/demo
	@bin/demo

.PHONY: test
test: lint verify test-go test-examples ## Everything CI needs.

.PHONY: test-go
test-go: ## Unit, property, conformance and e2e tests, on embedded control planes.
	go run ./test/cluster/cmd/cluster-up --build-only
	go test -timeout=30m ./...

.PHONY: test-examples
test-examples: ## Tests of the examples, which are modules of their own.
	cd examples/interceptor && go vet ./... && go test ./...
	cd examples/interceptor-client-go && go vet ./... && go test ./...

.PHONY: race
race: ## Unit tests under the race detector.
	go test -race -timeout=30m $$(go list ./... | grep -v /test/)

.PHONY: explore
explore: ## Explore more interleavings than `make test` has time for (minutes, several GB).
	go test ./evacuation/request -run=TestEveryInterleaving -timeout=60m -v -explore.wide

FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 1m each).
	hack/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Measure Drawbridge against what it costs not to have it; writes docs/benchmarks.md (most of an hour).
	go run ./test/cluster/cmd/cluster-up --build-only
	go run ./test/bench/cmd/bench --page=docs/benchmarks.md

.PHONY: bench-quick
bench-quick: ## The same with smaller numbers, in some minutes; writes nothing.
	go run ./test/cluster/cmd/cluster-up --build-only
	go run ./test/bench/cmd/bench --quick

.PHONY: bench-go
bench-go: ## Benchmarks of single functions, with allocations.
	go test -run='^$$' -bench=. -benchmem $$(go list ./... | grep -v /test/)

.PHONY: cluster-up
cluster-up: ## Start the embedded Kubernetes and stay until interrupted.
	go run ./test/cluster/cmd/cluster-up --nodes=3
