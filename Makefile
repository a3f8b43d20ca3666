# Everything starts here: `make demo` shows it working, `make check` is the everyday loop, `make test` is everything.

# Where builds go, when they are not to go to target/.
TARGET := $(or $(CARGO_TARGET_DIR),target)
MUSL := x86_64-unknown-linux-musl
KERNEL ?= 6.12
SECONDS ?= 60

.PHONY: help setup check test demo validate bench bench-read bench-scan lab-capture-kernel lab-power-cut fuzz static man clean prove-process bench-process lab-reclaim lab-vmalloc lab-agree

help:
	@echo "make demo    crash a real kernel in a virtual machine, capture it, open the dump with drgn"
	@echo "make check   fmt, clippy, unit and integration tests: the everyday loop"
	@echo "make test    check, fuzz targets built, the proofs on real crashes of all lab kernels and on real processes"
	@echo "make validate   validate dumps of one kernel: make validate KERNEL=6.1"
	@echo "make bench   against makedumpfile on a vmcore of several GiB: make bench VMCORE=..."
	@echo "make bench-read          reading dumps, against libkdumpfile and drgn: make bench-read VMCORE=..."
	@echo "make bench-scan          the scan beside a plain sum and makedumpfile's: make bench-scan VMCORE=..."
	@echo "make lab-capture-kernel  what pagehaul, makedumpfile and cp do to a small capture kernel"
	@echo "make lab-power-cut       cut the power of a capture kernel at many moments"
	@echo "make prove-process   cores and checkpoints of real programs; make bench-process: against gcore and CRIU"
	@echo "make lab-reclaim  page reclaim under pressure in guests with 6.1, 6.12 and 7.2, compared"
	@echo "make lab-vmalloc  purges of vmalloc areas in guests with 6.12 and 7.2"
	@echo "make lab-agree    pagehaul, trace-cmd and perf record the same events: make lab-agree KERNEL=6.1"
	@echo "make fuzz    run every fuzz target for SECONDS=60"
	@echo "make static  the one static binary that goes into a capture kernel's initramfs"
	@echo "make man     manual pages and shell completions, in $(TARGET)/man and $(TARGET)/completions"

# What a bare Debian lacks: a C compiler, musl, Python for drgn. Nothing happens where it is there.
setup:
	scripts/setup.sh

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked --quiet

test: setup check static
	fuzz/build.sh
	PAGEHAUL_LAB=1 cargo test --locked -p lab -- --test-threads 1
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab validate --kernel all
	scripts/prove_process.sh

validate: setup
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab validate --kernel $(KERNEL)

demo: setup
	scripts/demo.sh $(KERNEL)

# Cores and checkpoints of real programs.
prove-process: setup
	scripts/prove_process.sh

# Against gcore and CRIU, on processes of 100 MiB to 8 GiB; the largest to a disk, for which memory would not do.
bench-process: setup
	scripts/bench_process.sh
	scripts/bench_process.sh --add --mib 8000 --rounds 1 --scratch /var/tmp
	scripts/prove_process.sh --only large --mib 800 --record docs/benchmarks/process-proof.md
	scripts/prove_process.sh --only large --mib 8000 --scratch /var/tmp --record docs/benchmarks/process-proof.md

bench: setup
	scripts/bench.sh "$(VMCORE)"
	$(MAKE) bench-process

bench-read: setup
	scripts/bench_read.sh "$(VMCORE)"

bench-scan: setup
	cargo build --release --locked -p pagehaul
	cargo build --release --locked -p pagehaul-kernel --example scan_rate
	python3 bench/scan.py "$(VMCORE)" --pagehaul $(TARGET)/release/pagehaul --scan-rate $(TARGET)/release/examples/scan_rate

lab-capture-kernel: setup
	cargo run --release --locked -p lab -- capture-kernel

lab-power-cut: setup
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab power-cut

# Both boot guests for minutes; their reports are kept in docs/experiments/.
lab-reclaim: setup
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab reclaim --out docs/experiments/reclaim.md

lab-vmalloc: setup
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab vmalloc --out docs/experiments/vmalloc-runs.md

# Three recorders of the same events, compared event by event.
lab-agree: setup
	cargo build --release --locked -p lab
	$(TARGET)/release/lab run --kernel $(KERNEL) --memory 512M --package trace-cmd --package linux-perf --package procps \
		--package mount --out $(abspath $(TARGET))/agree-$(KERNEL) tools/lab/scenarios/agree.sh
	AGREE=$(abspath $(TARGET))/agree-$(KERNEL) cargo test --locked -p pagehaul-trace --test agree -- --ignored --nocapture

fuzz: setup
	fuzz/run.sh $(SECONDS)

# Static, under 10 MB, runs from an initramfs. Without musl's target, glibc's static build does.
static: setup
	scripts/static.sh

man:
	cargo run --release --locked -p pagehaul -- man $(TARGET)/man
	mkdir -p $(TARGET)/completions
	for shell in bash zsh fish; do \
		cargo run --release --locked --quiet -p pagehaul -- completions $$shell > $(TARGET)/completions/pagehaul.$$shell; \
	done

clean:
	cargo clean
