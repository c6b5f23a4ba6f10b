# Tombolo. `make` alone says what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
export CGO_ENABLED := 0
# Tests are compiled as the programs are, so what both import is compiled once, whatever the directory is.
# Tables for debuggers cost a tenth of a package's compilation or more. No program has them (-s -w), and traces of panics
# do not need them.
UNTRIMMED := $(strip $(filter-out -trimpath -gcflags=%,$(GOFLAGS)) -gcflags=all=-dwarf=false)
export GOFLAGS := $(UNTRIMMED) -trimpath
# The lab's Kubernetes may be of another minor version: KUBERNETES=1.35 (docs/compatibility.md).
ifdef KUBERNETES
export KUBERNETES
endif
ROOT := $(CURDIR)
BIN := $(ROOT)/bin
CACHE ?= $(HOME)/.cache/tombolo
export TOMBOLO_REPO := $(ROOT)
export TOMBOLO_KUBERNETES := $(BIN)/kubernetes
# Stages print the time since here, that of a make in a make too.
ifndef TOMBOLO_START
export TOMBOLO_START := $(shell date +%s)
endif
STAGE := . build/stage.sh; stage
PROGRAMS := tombolo tombolo-agent tombolo-controller tombolo-lab
LDFLAGS := -s -w

.DEFAULT_GOAL := help
.PHONY: help build images next push manifests release release-check lab-binaries packages modules demo demo-up demo-down check test test-all test-code test-plain test-raced test-alone test-nodes test-labs test-e2e test-kernel test-chaos test-conformance walks chaos kernel openvswitch agnhost coredns page conformance netpol sig-network families mcs failover diagnosis between bench generate verify

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 18

build: ## compile the programs into bin/
	@build/programs $(BIN)

images: build ## make the container images, bin/images/*.tar, without a registry
	@$(STAGE) "container images" go run ./build/images $(BIN) $(BIN)/images

next: images # agent and controller under another tag and version, for tests of upgrades: only linked again
	@build/programs $(BIN)/next next ./cmd/tombolo-agent ./cmd/tombolo ./plugins/tombolo-cni ./cmd/tombolo-controller
	@$(STAGE) "images of the version next" go run ./build/images -tag next $(BIN)/next $(BIN)/next tombolo-agent tombolo-controller

TAG ?= dev
push: $(if $(VERSION),,images) ## publish the images, to REGISTRY=host/path, with TAG (dev), or a release with VERSION; INSECURE=1 without TLS
	@$(STAGE) "push" go run ./build/push $(if $(VERSION),-release $(BIN)/release/$(VERSION),-from $(BIN)/images -tag "$(TAG)") -registry "$(REGISTRY)" $(if $(INSECURE),-insecure)

manifests: ## write the manifests with the images of REGISTRY=host/path and TAG (dev) into bin/manifests
	@test -n "$(REGISTRY)" || { echo 'REGISTRY is empty: the host and path that `make push REGISTRY=host/path` published to'; exit 1; }
	@go run ./deploy/render -out $(BIN)/manifests -registry "$(REGISTRY)" -tag "$(TAG)"
	@find $(BIN)/manifests -name '*.yml'

# Platforms of the command line, and architectures of the images, of a release.
PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64
ARCHITECTURES ?= amd64 arm64
empty :=
comma := ,
separated = $(subst $(empty) $(empty),$(comma),$(strip $(1)))
release: ## make all that a release has into bin/release/VERSION: VERSION=v1.2.3 REGISTRY=host/path, KEY=FILE to sign it (docs/release.md)
	@test -n "$(VERSION)" -a -n "$(REGISTRY)" || { echo 'VERSION or REGISTRY is empty: make release VERSION=v1.2.3 REGISTRY=host/path'; exit 1; }
	@[[ "$(VERSION)" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$$ ]] || { echo 'VERSION $(VERSION): want a version such as v1.2.3 or v1.2.3-rc.1'; exit 1; }
	@changes=$$(git status --porcelain); test -z "$$changes" || { echo 'a release is made of a commit: commit or remove these changes'; echo "$$changes"; exit 1; }
	@for architecture in $(ARCHITECTURES); do GOOS=linux GOARCH=$$architecture build/programs $(BIN)/cross/$(VERSION)/linux-$$architecture "$(VERSION)" ./cmd/tombolo-agent ./cmd/tombolo ./plugins/tombolo-cni ./cmd/tombolo-controller; done
	@for platform in $(filter-out $(ARCHITECTURES:%=linux-%),$(PLATFORMS)); do GOOS=$${platform%-*} GOARCH=$${platform#*-} build/programs $(BIN)/cross/$(VERSION)/$$platform "$(VERSION)" ./cmd/tombolo; done
	@$(STAGE) "the release $(VERSION)" go run ./build/release -version "$(VERSION)" -registry "$(REGISTRY)" $(if $(KEY),-key "$(KEY)") $(if $(SOURCES),-sources "$(SOURCES)") $(if $(DOWNLOADS),-downloads "$(DOWNLOADS)") -programs $(BIN)/cross/$(VERSION) -packages $(BIN)/debian -architectures $(call separated,$(ARCHITECTURES)) -platforms $(call separated,$(PLATFORMS)) -time "$$(git log -1 --format=%ct)" -out $(BIN)/release/$(VERSION)
	@cat $(BIN)/release/$(VERSION)/SHA256SUMS

release-check: ## start the programs of the arm64 images of bin/release/VERSION under QEMU
	@test -n "$(VERSION)" || { echo 'VERSION is empty: make release-check VERSION=v1.2.3, of a release in bin/release'; exit 1; }
	@test -d "$(BIN)/release/$(VERSION)/images" || { echo 'bin/release has no release $(VERSION): make release VERSION=$(VERSION) makes it'; exit 1; }
	@build/packages qemu-user-static
	@go run ./build/emulate $(BIN)/release/$(VERSION)/images

lab-binaries: ## compile what the lab runs (Kubernetes, containerd; cached in ~/.cache/tombolo)
	@build/lab-binaries $(CACHE) $(BIN)

packages: ## install the Debian packages that tests and demo need
	@build/packages

demo: ## bring up three clusters joined by Tombolo and show a request
	@build/hugepages $(MAKE) --no-print-directory demo-up

demo-up: packages lab-binaries images $(if $(filter 1,$(TENANTS)),coredns)
	@$(STAGE) "the demo" go build -trimpath -v -o $(BIN)/demo ./test/demo
	@$(BIN)/demo

demo-down: ## remove the demo's clusters
	@$(STAGE) "tombolo-lab" go build -trimpath -v -o $(BIN)/tombolo-lab ./cmd/tombolo-lab
	@$(BIN)/tombolo-lab --lab demo down

check: packages ## format, columns and words, vet, lint, and the tests that derive tables from objects
	@build/check

modules: # what compiling and testing everything downloads
	@$(STAGE) "Go modules" go list -deps -test ./... tool
	@cd deploy/boards && go list -deps -test ./... >/dev/null

# The page of the map is built with node and tested in Chromium. A node that is no Debian package brings npm with it.
PAGE := chromium fonts-dejavu-core $(shell command -v npm >/dev/null || echo nodejs npm)

test: ## all tests, the lab's included
	@build/hugepages $(MAKE) --no-print-directory test-all

test-all: packages lab-binaries images next modules agnhost coredns
	@build/packages $(PAGE)
	@rm -rf $(BIN)/unstable
	@# Labs that wait most of the time leave processor time to test-code and test-raced, which judge no times. The other
	@# parts run one after the other. All run, so one run shows all that fails. Where labs leave no time, all parts run one
	@# after the other. The parts that find most come first, so code runs without the race detector before.
	@status=0; run="$(MAKE) --no-print-directory -k -j1"; alone="test-kernel test-alone test-nodes test-chaos"; \
	if [ "$$(build/together spare)" = 1 ]; then \
		build/together "$$run test-e2e test-conformance test-labs" "$$run test-code test-raced" $(BIN)/test-code.log || status=1; \
		$$run $$alone || status=1; \
	else \
		$$run test-e2e test-code test-plain test-conformance test-labs $$alone test-raced || status=1; \
	fi; \
	build/tests unstable; exit $$status

# Packages that have parts of their own, and three that `make test` does not run.
OWN := ./test/e2e ./test/conformance ./test/demo ./test/lab ./test/families ./test/kernel ./test/node ./test/chaos ./test/netpol ./test/signetwork ./test/diagnosis

test-code: # all that needs no lab, without the race detector
	build/tests code "$$(build/tiers others $(OWN))" -p 3 -parallel 4 -timeout 30m -skip "$$(build/tiers skip)"
	go vet $$(build/tiers raced) # not with -race: what they import has been vetted without it already
	cd deploy/boards && go vet ./... && go test -count=1 ./... # alerts and boards: a module of its own
	build/tests unraced "$$(build/tiers packages unraced)" -vet=off -parallel 4 -timeout 30m -run "$$(build/tiers run unraced)"

test-plain: # the packages of test-raced, without the race detector
	build/tests plain "$$(build/tiers raced)" -vet=off -p 2 -parallel 4 -timeout 30m -skip "$$(build/tiers skip)"

test-raced: # what runs in several goroutines (build/tiers)
	CGO_ENABLED=1 GOFLAGS="$(UNTRIMMED)" build/tests raced "$$(build/tiers raced)" -race -vet=off -p 3 -parallel 2 -timeout 60m -skip "$$(build/tiers skip)"

test-alone: # tests that judge lost packets and times, and mostly wait
	build/tests alone "$$(build/tiers packages alone)" -vet=off -p 2 -parallel 1 -timeout 30m -run "$$(build/tiers run alone)"

test-nodes: # Nodes that share one API server; they judge how long new Pods have no connection
	build/tests nodes ./test/node -timeout 30m

test-labs: # labs that are up for a minute or two, one after the other
	build/tests labs "./test/demo ./test/lab ./test/families" -p 1 -timeout 30m

test-e2e: # the programs and manifests, in one lab
	build/tests e2e ./test/e2e -timeout 60m

test-kernel: # the kernel's datapath, in QEMU
	build/tests kernel ./test/kernel -timeout 26m

test-chaos:
	build/tests chaos ./test/chaos -timeout 20m

test-conformance:
	build/tests conformance ./test/conformance -timeout 20m

STEPS ?= 3000
walks: ## take the tests' random walks further than `make test`: STEPS (3000), SEED (1)
	go test -count=1 -timeout 60m -run 'Walk|TestPolicies|TestConverges|TestElsewhere|TestChangeOfMind' ./pkg/policy ./pkg/service ./pkg/multicluster/peering ./pkg/datapath \
		./pkg/multicluster/member ./pkg/multicluster/leader -walk.steps $(STEPS) -walk.seed $(or $(SEED),1)
	go test -count=1 -timeout 60m -run TestWalk ./pkg/agent -walk.tables $(STEPS) -walk.seed $(or $(SEED),1)

MINUTES ?= 60
chaos: packages lab-binaries images modules ## break things in a lab for MINUTES (60); SEED decides what, where, when
	go test -count=1 -v -timeout $$(($(MINUTES) + 30))m ./test/chaos -chaos.minutes $(MINUTES) $(if $(SEED),-chaos.seed $(SEED))

kernel: packages lab-binaries ## run all tests that meet the kernel's datapath, in QEMU (25 minutes)
	go test -count=1 -v -timeout 90m ./test/kernel -kernel.all -kernel.timeout 80m

page: packages ## build the page of the map from web/ into pkg/observe/ui/dist
	@build/packages $(PAGE)
	@$(STAGE) "npm packages" npm --prefix web ci --ignore-scripts
	@node web/build.mjs

DEBIAN ?= sid
openvswitch: packages lab-binaries modules ## run the tests of OpenFlow, bridges and packets with Open vSwitch of another suite of Debian: DEBIAN (sid)
	@$(STAGE) "Open vSwitch of $(DEBIAN)" go run ./build/openvswitch $(DEBIAN) $(CACHE)/openvswitch-$(DEBIAN)
	@export PATH="$(CACHE)/openvswitch-$(DEBIAN)/bin:$$PATH" OVS_PKGDATADIR="$(CACHE)/openvswitch-$(DEBIAN)/share"; ovs-vswitchd --version | head -1; \
		go test -count=1 -timeout 30m ./pkg/openflow/... ./pkg/ovs/... ./pkg/datapath ./pkg/agent

agnhost: lab-binaries images # the server of other people's suites, and its image
	@build/lab-binaries $(CACHE) $(BIN) agnhost
	@$(STAGE) "agnhost's image" go run ./build/images $(BIN) $(BIN)/conformance agnhost

coredns: lab-binaries images # the lab's DNS server, and its image
	@build/lab-binaries $(CACHE) $(BIN) coredns
	@$(STAGE) "CoreDNS's image" go run ./build/images $(BIN) $(BIN)/dns coredns

conformance: packages modules agnhost ## run the suite of SIG Network for ClusterNetworkPolicy in a lab (5 minutes); FAMILIES (4), 46 or 6
	@$(STAGE) "the suite" go test -c -o $(BIN)/conformance.test ./test/conformance
	@cd test/conformance && $(BIN)/conformance.test -test.timeout 30m $(if $(EXPERIMENTAL),-conformance.experimental) $(if $(FAMILIES),-conformance.families $(FAMILIES))

netpol: packages modules agnhost ## run Kubernetes' own tests of NetworkPolicy in a lab (15 minutes); FAMILIES (4), 46 or 6
	@build/lab-binaries $(CACHE) $(BIN) e2e
	@$(STAGE) "agnhost's image" go run ./build/images $(BIN) $(BIN)/conformance agnhost-netpol
	@go test -count=1 -v -timeout 60m ./test/netpol $(if $(FAMILIES),-netpol.families $(FAMILIES))

sig-network: packages modules coredns ## run Kubernetes' own tests of Services and host ports in a lab, or FOCUS of them without SKIP; FAMILIES (4), 46 or 6; MODE (encap), noEncap or hybrid; SUBNETS (1) or 2; PROCESSES (1) at once
	@build/packages dash netcat-openbsd bind9-dnsutils # which the suite's Pods run
	@build/lab-binaries $(CACHE) $(BIN) agnhost e2e
	@$(STAGE) "agnhost's image" go run ./build/images $(BIN) $(BIN)/conformance agnhost-network glibc-dns-testing pause-network busybox-network regression-network nginx-network
	@go test -count=1 -v -timeout 240m ./test/signetwork $(if $(FOCUS),-signetwork.focus '$(FOCUS)') $(if $(SKIP),-signetwork.skip '$(SKIP)') $(if $(FAMILIES),-signetwork.families $(FAMILIES)) $(if $(MODE),-signetwork.mode $(MODE)) $(if $(SUBNETS),-signetwork.subnets $(SUBNETS)) $(if $(PROCESSES),-signetwork.processes $(PROCESSES))

families: packages lab-binaries images modules coredns ## join clusters with IPv6 in a lab, FAMILIES (6) of them; ENCRYPTED=1; MODE (encap), noEncap or hybrid; SUBNETS (1) or 2
	@go test -count=1 -v -timeout 30m ./test/families -families.of $(or $(FAMILIES),6) $(if $(ENCRYPTED),-families.encrypted) $(if $(MODE),-families.mode $(MODE)) $(if $(SUBNETS),-families.subnets $(SUBNETS))

mcs: packages modules coredns ## run the suite of SIG Multicluster, SUITE=conformance/ of a copy of its sources, in a lab (8 minutes)
	@test -e "$(SUITE)/go.mod" || { echo 'make mcs: SUITE is the directory conformance of a copy of sigs.k8s.io/mcs-api'; exit 1; }
	@build/packages socat dash netcat-openbsd # of which its server and client are made
	@$(STAGE) "the suite's images" go run ./build/images $(BIN) $(BIN)/mcs socat netshoot
	@go run ./test/mcs "$(SUITE)" $(ARGS)

failover: packages lab-binaries images ## measure in a lab what clients notice of Gateways that fail, RUNS (10) times each; ARGS, such as --wireguard
	@go run ./test/failover --runs $(or $(RUNS),10) $(ARGS)

diagnosis: packages lab-binaries images modules ## put faults into a lab, which `tombolo diagnose` has to name first and the map has to show; FAULTS (each kind once), HEALTHY (3) looks before each, SEED (1)
	go test -count=1 -v -timeout 180m ./test/diagnosis -diagnosis.seed $(or $(SEED),1) -diagnosis.faults $(or $(FAULTS),0) -diagnosis.healthy $(or $(HEALTHY),3)

between: packages lab-binaries images ## measure in a lab what the way to another cluster carries, in plain text and encrypted; ARGS, such as --plain
	@go run ./test/between $(ARGS)

bench: packages lab-binaries images ## measure what flows and changes cost, and in a lab what the way to another cluster carries
	@go test -count=1 -run '^$$' -bench Table -benchtime 1x -timeout 60m ./test/bench ./test/node | grep -vE '^(goos|goarch|pkg|cpu|PASS|ok|Benchmark)'
	@go run ./test/between
	@go run ./test/between --joins

generate: ## write generated files anew
	go generate ./...
	go run ./deploy/render
	cd deploy/boards && go run . $(ROOT)
	go run ./build/reference
	cd build/pictures && go run . $(ROOT)/docs/pictures

verify: generate ## fail when generated files are not what `make generate` writes
	@git diff --exit-code -- . || { echo 'run `make generate` and commit the result'; exit 1; }
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'gofmt these:'; gofmt -l $$(git ls-files '*.go'); exit 1; }
