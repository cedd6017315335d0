# oomguard: build, try, test. `make demo` and `make test` set up what a fresh machine lacks.
#
# A torch that is already there is used: PYTHON=/path/to/python make demo, or the python3 on PATH when it imports torch.
# Otherwise a virtual environment in .venv gets the pinned one.

TORCH_VERSION := 2.15.0
GOLANGCI_VERSION := v2.15.0

PYTHON ?= python3
VENV := .venv
TOOLS := $(CURDIR)/.tools
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# go-nvml's header marks old calls as deprecated; nothing here uses them, and the warnings hide real ones.
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations
export CGO_LDFLAGS := -Wl,-z,lazy
# -z lazy: the NVML symbols are bound at their first call. Bound at start (-z now), the program would die before main on every
# machine without a driver.
LDFLAGS := -X main.linkedVersion=$(VERSION) -extldflags=-Wl,-z,lazy
GOFLAGS_BUILD := -trimpath -ldflags='$(LDFLAGS)'

.PHONY: all build demo demo-oom test test-all record static unit lint gate bench accuracy measure simulate clean python old-torch launchers FORCE

all: build

build: bin/oomguard

bin/oomguard: FORCE
	go build $(GOFLAGS_BUILD) -o $@ ./cmd/oomguard
FORCE:

# python: $(VENV)/where names the folder of a python that imports torch, with torchrun beside it.
python:
	@[ -s $(VENV)/where ] && [ -x "$$(cat $(VENV)/where)/torchrun" ] || sh .ci/python.sh "$(PYTHON)" "$(VENV)" "$(TORCH_VERSION)"
WITH_TORCH = PATH="$$(cat $(VENV)/where):$$PATH"
TEST_PYTHON = OOMGUARD_TEST_PYTHON="$$(cat $(VENV)/where)/python" OOMGUARD_TEST_LAUNCHERS="$$(cat $(LAUNCHERS)/where 2>/dev/null)" OOMGUARD_TEST_OLD_PYTHON="$$(sed 's|$$|/python|' $(OLD)/where 2>/dev/null)"

# old-torch: $(OLD)/where names the folder of the oldest PyTorch that this machine can install; it is empty where there is none.
OLD := $(VENV)/old
old-torch:
	@[ -s $(OLD)/where ] && [ -x "$$(cat $(OLD)/where)/torchrun" ] || sh .ci/old-torch.sh $(OLD)

# launchers: $(LAUNCHERS)/where names the folder of the real accelerate and deepspeed, beside that torch.
LAUNCHERS := $(VENV)/launchers
launchers: python
	@[ $(LAUNCHERS)/where -nt .ci/launchers.txt ] && "$$(cat $(LAUNCHERS)/where)/python" -c '' || sh .ci/launchers.sh "$$(cat $(VENV)/where)/python" $(LAUNCHERS)

demo: build python
	$(WITH_TORCH) bin/oomguard demo

demo-oom: build python
	$(WITH_TORCH) bin/oomguard demo --oom; test $$? -ne 0

# test: everything that CI runs: formatting, vet, cross builds, lint, and the tests (real launchers, real signals, a fake NVML), with the race
# detector where goroutines are. It ends with the ten slowest.
test: python launchers static
	$(TEST_PYTHON) sh .ci/slurm.sh go run .ci/gotest/main.go -vet=off -timeout 30m

# test-all: nightly, and before a release: test with the oldest PyTorch and all scenarios of accelerate and DeepSpeed, no recordings of what
# launchers do without oomguard, and nothing from go test's cache.
test-all: python old-torch launchers static
	go test .ci/gotest/main.go .ci/gotest/main_test.go
	OOMGUARD_TEST_ALL=1 $(TEST_PYTHON) sh .ci/slurm.sh go run .ci/gotest/main.go -vet=off -timeout 90m -count=1

# record: what launchers do without oomguard, for the versions that are installed here (launcher/conformance/testdata/direct).
record: python old-torch launchers
	OOMGUARD_TEST_ALL=1 OOMGUARD_TEST_RECORD=1 $(TEST_PYTHON) go test -count=1 -timeout 60m -run 'Torchrun$$|Accelerate|DeepSpeed|Terminal' ./launcher/conformance

# static: what needs no run. Both cross builds are without cgo.
static:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w'; exit 1; }
	go vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/oomguard
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/oomguard
ifneq ($(CI)$(wildcard $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)),)
	@$(MAKE) --no-print-directory lint
else
	@echo 'the linters are NOT RUN: make lint installs them; CI does'
endif

unit: python launchers
	$(TEST_PYTHON) go test ./...

lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
	$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) run ./...
$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@

# gate: what the answers to all jobs, models and logs in testdata are now, beside those of another commit: make gate BASE=main.
# Moving code changes none; the commit lists what is meant to change. Status 1 when some differ; what differs stays in bin/gate.
BASE ?= HEAD
gate:
	rm -rf bin/gate && mkdir -p bin/gate && git worktree prune && git worktree add -q --detach bin/gate/base $(BASE)
	cd bin/gate/base && OOMGUARD_TEST_GATE=$(CURDIR)/bin/gate/before go test -count=1 -run 'TestGate$$' ./cmd/oomguard; status=$$?; cd $(CURDIR) && git worktree remove --force bin/gate/base && exit $$status
	OOMGUARD_TEST_GATE=$(CURDIR)/bin/gate/after go test -count=1 -run 'TestGate$$' ./cmd/oomguard
	@diff -rU2 bin/gate/before bin/gate/after > bin/gate/differences || { cat bin/gate/differences | head -100; grep -c '^diff\|^Only' bin/gate/differences; exit 1; }

# bench: the numbers of the promises in the README.
bench: python
	$(TEST_PYTHON) go test -run '^$$' -bench . -benchmem ./...

# accuracy: the estimator against the cases in testdata, error by group.
accuracy:
	go test -run 'Accuracy|Simulated' -v ./preflight/estimate

# measure: trainings of published models on this machine's GPU (10 minutes on an H200), stage by stage: makes anew what TestMeasuredOnGPU compares with.
# Needs transformers, peft, accelerate and nvidia-ml-py beside torch, and bitsandbytes, deepspeed and liger-kernel for the cases that use them.
measure: python
	$(WITH_TORCH) python preflight/estimate/lab/measure.py --out preflight/estimate/testdata/measured_gpu.json

# simulate: trainings of small models of every family, counted without a GPU (preflight/estimate/lab): makes anew what
# TestSimulated* compare with. Takes an hour or two. optimizers.py names the optimizer packages that it did not find. Needs transformers, peft and accelerate beside torch (made with 5.24.0,
# 0.21.2 and 1.15.0); EXTRA names a folder that has them, if torch's own Python has not.
LAB := preflight/estimate/lab
FAMILIES := preflight/estimate/testdata
simulate: python
	mkdir -p $(VENV)
	$(WITH_TORCH) python $(LAB)/cases.py > $(VENV)/develop.json
	$(WITH_TORCH) python $(LAB)/cases.py held-out > $(VENV)/held-out.json
	$(WITH_TORCH) python $(LAB)/cases.py half > $(VENV)/half.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate.py $(VENV)/develop.json --out $(FAMILIES)/simulated_families.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate.py $(VENV)/held-out.json --out $(FAMILIES)/simulated_held_out.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate.py $(VENV)/half.json --out $(FAMILIES)/simulated_half.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/random_cases.py again $(FAMILIES)/simulated_random.json > $(VENV)/random.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate.py $(VENV)/random.json --out $(FAMILIES)/simulated_random.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/adapters.py > $(VENV)/adapters.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate.py $(VENV)/adapters.json --out $(FAMILIES)/simulated_adapters.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/optimizers.py --out preflight/optim/testdata/simulated.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/simulate_sharded.py --out $(FAMILIES)/simulated_sharded.json
	$(WITH_TORCH) PYTHONPATH="$(EXTRA)" python $(LAB)/compiled.py --out $(FAMILIES)/simulated_compiled.json

clean:
	rm -rf bin $(VENV) $(TOOLS)
