# `make help` prints the targets. Tools are pinned in go.tools*.mod, one module each
# where their dependencies clash, and are built by the go command when first used.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.DEFAULT_GOAL := help

# One variant of every package for programs, tests, tools, Kubernetes and the files of a release, which
# are built so: with two, everything is compiled twice. `make race` needs the other one.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

# The compiler takes a fifth less CPU when it collects garbage less often, for about 100 MiB per
# process. Only the compiler: tools and tests must not inherit it.
GO_BUILD := env GOGC=$${GOGC:-400} go build
tool = $$(GOGC=$${GOGC:-400} go tool -modfile=$(1) -n $(2))
CONTROLLER_GEN := $(call tool,go.tools.mod,controller-gen)
GOLANGCI_LINT := $(call tool,go.tools.lint.mod,golangci-lint)
CRD_REF_DOCS := $(call tool,go.tools.mod,crd-ref-docs)
HELM_DOCS := $(call tool,go.tools.docs.mod,helm-docs)
HUGO := $(call tool,go.tools.hugo.mod,hugo)
MISSPELL := $(call tool,go.tools.lint.mod,misspell)
HELM := $(call tool,go.tools.helm.mod,helm)
ACTIONLINT := $(call tool,go.tools.actions.mod,actionlint)
GORELEASER := $(call tool,go.tools.goreleaser.mod,goreleaser)

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
	$(CRD_REF_DOCS) --log-level=ERROR --source-path=./api/v1alpha1 --config=hack/crd-ref-docs/config.yaml --renderer=markdown --output-path=docs/reference/api.md
	go run ./cmd/kubectl-drawbridge/gen
	go run ./internal/metrics/gen
	go run ./internal/keys/gen
	go run ./test/peers/records/gen
	$(HELM_DOCS) --chart-search-root=$(CHART) --template-files=values.md.gotmpl --output-file=../../docs/reference/values.md \
		--sort-values-order=file --log-level=warning

.PHONY: verify
verify: verify-modules verify-generate verify-chart verify-workflows verify-spelling verify-site verify-release ## Check what must not go stale; changes nothing.

# The modules beside the main one follow its requirements; the go command says so only when it
# is used in them, which is at the end of `make test`.
.PHONY: verify-modules
verify-modules: ## Check that the modules of rules and examples need no `go mod tidy`.
	for module in test/alerts test/gitops examples/interceptor examples/interceptor-client-go; do \
		(cd $$module && go list -deps -test ./... >/dev/null) || { echo "run 'go mod tidy' in $$module" >&2; exit 1; }; \
	done

.PHONY: verify-generate
verify-generate: ## Check that the generated files are up to date.
	hack/verify-generate.sh

.PHONY: verify-chart
verify-chart: ## Check the chart with helm's own linter.
	$(HELM) lint --strict --quiet $(CHART)

.PHONY: verify-workflows
verify-workflows: ## Check the workflows with actionlint; docs/workflows_audit_test.go checks that they are safe.
	$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml

# The tests render the site themselves, so a site of yesterday in dist/ proves nothing.
.PHONY: verify-site
verify-site: site ## Check the rendered site: links and anchors, menu, search, old addresses.
	go test ./site

# Go sources are checked by the linter, with the same list of words.
.PHONY: verify-spelling
verify-spelling: ## Check the spelling of pages, examples and the chart.
	git ls-files '*.md' 'docs/*.yaml' 'charts/*.yaml' 'charts/*.gotmpl' 'charts/*.txt' 'examples/*.yaml' 'site/*.html' '.github' | \
		xargs $(MISSPELL) -locale=US -error -source=text

.PHONY: verify-release
verify-release: ## Check GoReleaser's configuration, and let krew judge its manifest (the first time builds GoReleaser).
	$(GORELEASER) check --quiet
	go run ./hack/release --rehearse

# What linter and tests would compile anyway.
.PHONY: compile
compile:
	$(GO_BUILD) ./...

.PHONY: lint
lint: compile ## Check the Go sources; `make lint-fix` repairs what can be repaired.
	$(GOLANGCI_LINT) run ./...

.PHONY: lint-fix
lint-fix: ## Format the Go sources and repair findings of the linter.
	$(GOLANGCI_LINT) run --fix ./...

SITE_URL ?=

# Pages of releases come from their Go module, by the same proxy as everything else.
.PHONY: site
site: ## Render docs/ into dist/site; with SITE_URL=ADDRESS for another place than that of site/hugo.yaml.
	rm -rf dist/site
	HUGO_MODULE_PROXY="$$(go env GOPROXY)" $(HUGO) build --source=site --destination=../dist/site --noBuildLock \
		--panicOnWarning $(if $(SITE_URL),--baseURL='$(SITE_URL)')

.PHONY: site-serve
site-serve: ## Show the site on 127.0.0.1:1313 while you write.
	HUGO_MODULE_PROXY="$$(go env GOPROXY)" $(HUGO) server --source=site --bind=127.0.0.1 --baseURL=http://127.0.0.1:1313/ --noBuildLock --renderToMemory

.PHONY: site-picture
site-picture: browser ## Take the picture of the landing page, docs/images/site.png.
	go test -count=1 ./site -run=TestTheLandingPageIsPictured -args -screenshots='$(CURDIR)/docs/images'

.PHONY: plugin
plugin: ## Build the kubectl plugin, bin/kubectl-drawbridge, and what kubectl completes it by.
	$(GO_BUILD) -trimpath -ldflags='-s -w' -o bin/kubectl-drawbridge ./cmd/kubectl-drawbridge
	cp cmd/kubectl-drawbridge/app/kubectl_complete-drawbridge bin/

.PHONY: demo
demo: ## Show the main job on an embedded control plane (the first time builds it: 10 to 20 minutes).
	@echo "Building the demo, which takes some minutes the first time. A control plane, helm and the manager follow."
	@hack/fetch-modules.sh & hack/tell.sh "building the demo's own program, about 4 minutes the first time" $(GO_BUILD) -o bin/demo ./test/demo
	@bin/demo

# The suites leave a third of two processors idle. The rest takes that, and no more: its one control
# plane mostly waits.
.PHONY: test
test: compile ## Everything CI needs.
	$(MAKE) --no-print-directory -j2 test-go checks
	@go run ./test/framework/browser/cmd/browser --check

.PHONY: checks
checks: ## What `make test` does beside its suites, with what they leave of the processors.
	nice -n 19 $(MAKE) --no-print-directory -j1 lint verify test-alerts test-examples test-push
	cd test/gitops && nice -n 19 go vet ./...
	$(MAKE) --no-print-directory -j1 test-gitops

# The linter runs vet already, and without DWARF and gcc's linker a test program is linked in half the
# time; there are a hundred. Stack traces need neither.
TESTFLAGS := -vet=off -ldflags='-w -linkmode=internal'

# As many packages at a time as CPUs: with a third control plane everything is starved on a busy machine.
# The slowest suite takes 12 minutes there. One that hangs is to say where before CI gives up.
.PHONY: test-go
test-go: ## Unit, property, conformance and e2e tests, on embedded control planes.
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	go test -p=2 -timeout=30m $(TESTFLAGS) ./...

.PHONY: browser
browser: ## Get what the tests of the dashboard need: Chromium (Debian's package) and axe-core (npm).
	go run ./test/framework/browser/cmd/browser

.PHONY: screenshots
screenshots: browser ## Take the pictures of docs/images, with the tests of the dashboard.
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	go test -count=1 -timeout=30m ./test/e2e/dashboard -args -screenshots='$(CURDIR)/docs/images'

.PHONY: forecast-compare
forecast-compare: ## Compare forecasts with ten real drains; writes the table of docs/forecast.md (about 10 minutes).
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	go test -count=1 -timeout=60m -v ./test/e2e/forecast -args -forecast.scenarios=10 -forecast.table='$(CURDIR)/docs/forecast.md'

SKEW_ARGS ?=

# One of the two, such as test/e2e/install.
SKEW_ONLY ?=
KUBERNETES ?= oldest

.PHONY: test-skew
test-skew: ## e2e and install tests on the oldest Kubernetes, or KUBERNETES=newest; writes the table of docs/operations/versions.md.
	DRAWBRIDGE_KUBERNETES=$(KUBERNETES) go run ./test/framework/cluster/cmd/cluster-up --build-only
	DRAWBRIDGE_KUBERNETES=$(KUBERNETES) go run ./test/framework/cluster/cmd/test-skew --page=docs/operations/versions.md --only='$(SKEW_ONLY)' -- $(SKEW_ARGS)

PEER ?=
CHECKOUT ?=
PEER_ARGS ?=

.PHONY: test-peers
test-peers: ## Put a real program of others into ten situations, and record what it does: PEER=karpenter CHECKOUT=FOLDER (hack/peers/README.md).
	@hack/peers/build.sh --check '$(PEER)' '$(CHECKOUT)'
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	hack/peers/build.sh '$(PEER)' '$(CHECKOUT)' bin/peers/$(PEER)
	DRAWBRIDGE_PEER='$(PEER)' DRAWBRIDGE_PEER_FOLDER='$(CURDIR)/bin/peers/$(PEER)' DRAWBRIDGE_PEER_RECORD='$(CURDIR)/test/peers/records' \
		go test -count=1 -timeout=90m -v $(PEER_ARGS) ./test/peers/...
	go run ./test/peers/records/gen

.PHONY: test-alerts
test-alerts: ## Prove the alerts and the dashboard with Prometheus' own engine.
	cd test/alerts && go vet ./... && go test -count=1 ./...

.PHONY: test-examples
test-examples: ## Tests of the examples, which are modules of their own.
	cd examples/interceptor && go vet ./... && go test ./...
	cd examples/interceptor-client-go && go vet ./... && go test ./...

.PHONY: test-gitops
test-gitops: ## Apply the examples for Argo CD, Flux, kustomize and Terraform to an embedded control plane.
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	cd test/gitops && go vet ./... && go test -count=1 -timeout=30m ./...

.PHONY: test-push
test-push: ## Push an image and the chart to a registry on this machine.
	cd hack/push && go vet ./... && go test -count=1 ./...

PKG ?= ./...
ROUNDS ?= 10

.PHONY: flakes
flakes: ## Run the tests of PKG=./test/e2e ROUNDS=10 times beside a busy loop on one CPU, and print what failed.
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	TESTFLAGS="$(TESTFLAGS)" hack/flakes.sh '$(ROUNDS)' $(PKG)

# What is wide, and what `make test` has no time for. NIGHTLY=fuzz is one of them.
NIGHTLY ?= race explore fuzz mutations chaos test-skew bench-quick test-image test-release vulncheck

.PHONY: nightly
nightly: $(NIGHTLY) ## Everything that is too wide for `make test` (hours); one of them by NIGHTLY=chaos.

.PHONY: race
race: ## Unit tests under the race detector.
	CGO_ENABLED=1 go test -race -timeout=30m $$(go list ./... | grep -v /test/)

.PHONY: explore
explore: ## Explore more interleavings than `make test` has time for (minutes, several GB).
	go test ./evacuation/request -run="TestEvery(Native)?Interleaving" -timeout=60m -v -explore.wide
	go test ./evacuation/budget -run=TestEveryWayOfSingletons -v -explore.wide

FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 1m each).
	hack/fuzz.sh $(FUZZTIME)

MUTATIONS_ARGS ?=

.PHONY: mutations
mutations: ## Make the mistakes of test/mutations, one at a time: the tests must find each; for some MUTATIONS_ARGS=--only=webhook.
	go run ./test/mutations $(MUTATIONS_ARGS)

.PHONY: bench
bench: ## Measure Drawbridge against what it costs not to have it; writes docs/benchmarks.md (one to two hours).
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	go run ./test/bench/cmd/bench --page=docs/benchmarks.md

.PHONY: bench-quick
bench-quick: ## The same with smaller numbers, in some minutes; writes nothing.
	go run ./test/framework/cluster/cmd/cluster-up --build-only
	go run ./test/bench/cmd/bench --quick

.PHONY: bench-go
bench-go: ## Benchmarks of single functions, with allocations.
	go test -run='^$$' -bench=. -benchmem $$(go list ./... | grep -v /test/)

ARGS ?=

.PHONY: chaos
chaos: ## Randomized drains under faults, 200 runs; for fewer ARGS='--runs=10 --seed=1 --duration=10m'.
	@go build -o bin/chaos ./test/chaos/cmd/chaos
	@bin/chaos $(ARGS)

.PHONY: chaos-quick
chaos-quick: ## Ten chaos runs with seeds that nobody has chosen.
	@go build -o bin/chaos ./test/chaos/cmd/chaos
	@bin/chaos --runs=10 --seed=$$(date +%s)

.PHONY: cluster-up
cluster-up: ## Start the embedded Kubernetes and stay until interrupted.
	go run ./test/framework/cluster/cmd/cluster-up --nodes=3

VERSION ?=
# What is built for one platform only, as in tests: PLATFORMS=linux/amd64.
PLATFORMS ?=
DIST ?= dist

.PHONY: release
release: ## Write all files of a release below dist/: VERSION=v1.2.3 (docs/operations/release.md).
	rm -rf '$(DIST)'
	go run ./hack/release --version='$(VERSION)' --platforms='$(PLATFORMS)' --output='$(DIST)'
	$(MAKE) --no-print-directory manifests VERSION='$(VERSION)' OUT='$(DIST)'
	go run ./hack/release --checksums --output='$(DIST)'

.PHONY: test-release
test-release: ## Check that two releases from two clones, in two folders, are the same (the first time about 15 minutes).
	hack/test-release.sh

.PHONY: image
image: ## Build the image as an OCI layout in dist/image, without a container engine; always the same bytes.
	cd hack/image && go run .

.PHONY: test-image
test-image: ## Check that two builds of the image are the same (the first time compiles everything once more).
	cd hack/image && go vet ./... && go test -timeout=30m ./...

OUT ?= dist

.PHONY: manifests
manifests: ## Write install.yaml, install-crds.yaml and cleanup.yaml of VERSION=vX.Y.Z to OUT (default dist), for kubectl.
	go run ./hack/manifests --version='$(VERSION)' --out='$(OUT)'

.PHONY: sbom
sbom: ## Write the bill of materials of the manager, CycloneDX, to dist/drawbridge.cdx.json.
	mkdir -p dist
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w -buildid=" -o dist/drawbridge ./cmd/drawbridge
	go run ./hack/sbom dist/drawbridge >dist/drawbridge.cdx.json

REGISTRY ?=

.PHONY: push
push: ## Push image and chart of `make release` to a registry: VERSION=vX.Y.Z REGISTRY=ghcr.io/drawbridge-dev.
	hack/push/push.sh '$(VERSION)' '$(REGISTRY)' dist

.PHONY: sign
sign: ## Sign what `make push` has pushed, without a key; needs cosign in the PATH.
	hack/push/sign.sh dist

.PHONY: publish
publish: ## Make the release VERSION=vX.Y.Z on GitHub, with the files of dist; needs gh in the PATH.
	hack/push/publish.sh '$(VERSION)' dist

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities; says so when the database cannot be reached.
	hack/vulncheck.sh
