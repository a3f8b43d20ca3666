# Start here: `make demo` shows it working, `make check` is the everyday loop, `make test` is everything.

# Where builds go, unless CARGO_TARGET_DIR says otherwise.
TARGET := $(or $(CARGO_TARGET_DIR),target)
KERNEL ?= 6.12
# What `make static` builds for: x86_64 or aarch64.
ARCH ?= $(shell uname -m)
SECONDS ?= 60
# Checkpoints and restarts of each program in a guest.
ROUNDS ?= 2
# Debian releases whose kdump-tools are tried: bookworm, trixie or all.
KDUMP_SUITE ?= all
# Where their dumps go: local, ssh, nfs, encrypted, or all, which leaves out the last two.
KDUMP_TARGET ?= all

.PHONY: help setup setup-build setup-demo check lint deny tests guide test test-guests test-beside test-full demo validate validate-process validate-process-guest packages fleet wheel \
	test-wheel test-pages test-spark test-packages test-reproducible release test-kdump test-kdump-faults test-kdump-dracut test-core-handler test-arm64 test-arm64-emulator test-riscv64 test-store test-upload static man \
	bench bench-read bench-scan bench-process fuzz lab-capture-kernel lab-power-cut lab-reclaim lab-vmalloc lab-agree clean

help:
	@echo "make demo               crash a real kernel in a virtual machine, capture it, open the dump with drgn, explain the crash"
	@echo "make check              fmt, clippy, dependency licences, unit and integration tests: the everyday loop"
	@echo "make test               check, validation on real crashes of four x86_64 kernels and one of arm64, on processes, packages"
	@echo "make test-full          test, all kernels, test-arm64, test-riscv64, test-core-handler, validate-process-guest, and 1,000 rounds of faults at any moment of commands on processes"
	@echo "make validate           validate dumps of one kernel: make validate KERNEL=6.1"
	@echo "make validate-process   validate cores, checkpoints and restarts of real programs"
	@echo "make validate-process-guest  the same in a guest: make validate-process-guest KERNEL=7.2 ROUNDS=20"
	@echo "make static             the static binary for a capture kernel's initramfs: make static ARCH=aarch64"
	@echo "make fleet              pagehaul-fleet, which makes tables of the facts of many dumps"
	@echo "make wheel              the Python package, in $(TARGET)/wheels/release: make wheel ARCH=aarch64"
	@echo "make test-pages         the web page of triage in Chromium, which clicks"
	@echo "make test-spark         extraction on a Spark cluster of two workers, one of which is killed"
	@echo "make packages           a .deb and an .rpm, in $(TARGET)/packages: make packages ARCH=aarch64"
	@echo "make release            packages, sources for distributions, bills of materials, SHA256SUMS: make release ARCH=\"x86_64 aarch64\""
	@echo "make test-kdump         crash Debian 12 and 13 guests whose kdump-tools call pagehaul"
	@echo "make test-kdump-faults  crash guests with one fault each in their kdump, and compare with kdump check: about an hour"
	@echo "make test-kdump-dracut  crash guests with Fedora's and openSUSE's kdump: PAGEHAUL_KDUMP_UTILS, PAGEHAUL_SUSE_KDUMP"
	@echo "make test-core-handler  crash processes in a Debian 13 guest with systemd-coredump, with pagehaul-core and without"
	@echo "make test-store         captures to a real S3 server, with faults; builds the server with Go"
	@echo "make test-upload        a capture kernel with a clock of 1990 that sends its dump to that server and over ssh"
	@echo "make test-arm64         the binary for arm64 in an emulator, crashes of every arm64 kernel, packages installed in a guest"
	@echo "make test-riscv64       crashes of every riscv64 kernel"
	@echo "make guide              the guide and the other documents as web pages, in $(TARGET)/guide"
	@echo "make man                manual pages and shell completions, in $(TARGET)/man and $(TARGET)/completions"
	@echo "make fuzz               run every fuzz target for SECONDS=60"
	@echo "make bench              compare with makedumpfile on a vmcore of 6 GiB, or VMCORE=..."
	@echo "make bench-read         compare reading of dumps with libkdumpfile and drgn: VMCORE=..."
	@echo "make bench-scan         compare the scan with makedumpfile's and with a plain sum: VMCORE=..."
	@echo "make bench-process      compare cores and checkpoints with gcore and CRIU"
	@echo "make lab-capture-kernel measure pagehaul, makedumpfile and cp in small capture kernels"
	@echo "make lab-power-cut      cut the power of a capture kernel at many moments"
	@echo "make lab-reclaim        page reclaim under pressure in guests with 6.1, 6.12 and 7.2, compared"
	@echo "make lab-vmalloc        purges of vmalloc areas in guests with 6.12 and 7.2"
	@echo "make lab-agree          compare recordings of pagehaul, trace-cmd and perf: make lab-agree KERNEL=6.1"

# Debian packages that a bare machine lacks, by purpose. Each does nothing where all are installed.
setup:
	scripts/setup.sh test

setup-build:
	scripts/setup.sh build

setup-demo:
	scripts/setup.sh demo

check: lint deny tests

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# What runs without a guest.
tests:
	cargo test --workspace --locked --quiet

# Licences, sources and duplicates of dependencies. The first run builds cargo-deny.
deny:
	scripts/deny.sh

# The guide as a book. The first run builds mdBook, which takes a minute of two CPUs.
guide:
	scripts/guide.sh

# Everything is built once: incremental builds would take 6 GB more. Of what is built for release only the binary for capture kernels
# is the one that is shipped: it is what runs where nothing may go wrong. The others are packed as they are and run in guests.
test test-full: export CARGO_INCREMENTAL := 0
test test-full: export PAGEHAUL_PROFILE := unoptimized

# The lab and what it tries, as tests have them: `make tests` has built them. Dependencies have the same features only where all
# packages and an example are selected; else all is built again.
LAB_BUILD := cargo build --locked --workspace --bin lab --bin pagehaul --bin pagehaul-fleet --example subject
LAB := $(TARGET)/debug/lab
LAB_TESTS := $(patsubst tools/lab/tests/%.rs,--test %,$(wildcard tools/lab/tests/*.rs))

# Records how long a step takes: $(STEP) NAME COMMAND.
STEP := scripts/step.sh

test: setup
	scripts/setup.sh build aarch64 emulator
	$(STEP) --begin
	cargo fmt --all --check
	$(STEP) build sh -c 'cargo test --locked --workspace --no-run --quiet && $(LAB_BUILD)'
	$(MAKE) --jobs 2 test-guests test-beside
	$(STEP) --report

# One guest runs at a time, on one CPU for most of it: what needs none runs beside.
test-guests:
	PAGEHAUL_LAB=1 $(STEP) "tests of the lab" cargo test --locked --workspace $(LAB_TESTS) -- --test-threads 1
	$(STEP) validate-triage $(LAB) validate-triage --kernel all
	$(STEP) validate $(LAB) validate --kernel few
	# `make test-full` has both releases write to the disk and over ssh.
	$(STEP) "kdump-tools of Debian 13" $(MAKE) test-kdump KDUMP_SUITE=trixie KDUMP_TARGET=local

test-beside:
	$(STEP) tests $(MAKE) tests
	$(STEP) "lint and deny" $(MAKE) lint deny
	$(STEP) static $(MAKE) static
	$(STEP) packages scripts/test_packages.sh
	$(STEP) "arm64 emulator" $(MAKE) test-arm64-emulator
	$(STEP) wheel scripts/test_wheel.sh
	$(STEP) guide $(MAKE) guide
	cd fuzz && ../$(STEP) "fuzz targets" cargo check --locked --quiet --bins --target-dir $(abspath $(TARGET))
	$(LAB_BUILD)
	$(STEP) validate-process $(LAB) validate-process

test-full: test test-pages test-spark test-store test-upload
	$(LAB) validate --kernel all
	PAGEHAUL_LAB=all cargo test --locked --workspace --test erase --test keep --test live --test pstore_guests --test slab_users \
	--test stamps -- --test-threads 1
	$(MAKE) test-arm64
	$(MAKE) test-riscv64
	$(MAKE) test-kdump KDUMP_SUITE=trixie KDUMP_TARGET=encrypted
	$(MAKE) test-kdump KDUMP_SUITE=trixie KDUMP_TARGET=ssh
	$(MAKE) test-kdump KDUMP_SUITE=bookworm KDUMP_TARGET=local
	$(MAKE) test-kdump KDUMP_SUITE=bookworm KDUMP_TARGET=ssh
	$(MAKE) test-kdump KDUMP_SUITE=bookworm KDUMP_TARGET=nfs
	$(MAKE) test-core-handler
	$(MAKE) validate-process-guest
	if [ -n "$(PAGEHAUL_KDUMP_UTILS)" ] && [ -n "$(PAGEHAUL_SUSE_KDUMP)" ]; then $(MAKE) test-kdump-dracut; \
	else echo "not tested: Fedora's and openSUSE's kdump: PAGEHAUL_KDUMP_UTILS, PAGEHAUL_SUSE_KDUMP"; fi
	# Crashes up to four times, until tasks reclaim memory at that moment.
	$(LAB) validate-triage --kernel 7.2 --scenario reclaim
	$(LAB) validate-triage --kernel 6.12-rt --scenario deadlock --scenario rtlock
	$(LAB) validate-triage --kernel 7.2 --scenario deadlock
	$(LAB) validate-triage --kernel 6.12 --scenario null-call --scenario suspended --scenario use-after-free
	$(LAB) validate-triage --kernel 6.12 --scenario work --scenario irqs-off --scenario owners
	PAGEHAUL_ROUNDS=1000 cargo test --locked -p pagehaul --test moments
	scripts/test_reproducible.sh

validate: setup
	$(LAB_BUILD)
	$(LAB) validate --kernel $(KERNEL)

validate-process: setup
	$(LAB_BUILD)
	$(LAB) validate-process

# Cores, checkpoints and restarts on a kernel of the lab: 15 to 25 minutes of an emulated machine with two rounds.
validate-process-guest: setup
	$(LAB_BUILD)
	$(LAB) validate-process --kernel $(KERNEL) --rounds $(ROUNDS)

demo:
	scripts/demo.sh $(KERNEL)

# Static, under 10 MB, runs from an initramfs. Without the musl target it is linked to glibc.
static: setup-build
	scripts/setup.sh $(ARCH)
	scripts/static.sh capture $(ARCH)

# The binary for arm64, run on synthetic dumps by an emulator.
test-arm64-emulator:
	scripts/setup.sh build aarch64 emulator
	scripts/test_arm64.sh

# Guests with pages of 4 and 16 KiB, translated by QEMU, which the lab fetches. `make test` runs one of them.
test-arm64: setup test-arm64-emulator
	$(LAB_BUILD)
	$(LAB) validate --kernel arm64
	$(LAB) validate-triage --kernel 6.12-arm64
	$(LAB) validate-triage --kernel 6.12-arm64-16k
	$(LAB) validate-process --kernel 6.12-arm64
	# Without the tests of cores, which were written for pages of 4 KiB.
	$(LAB) validate-process --kernel 6.12-arm64-16k --rounds 1 $(addprefix --only ,huge hugetlb running generations threads events family writer)
	scripts/test_packages_arm64.sh

# Guests with addresses of 39 and 57 bits, translated by QEMU, which the lab fetches.
test-riscv64: setup
	scripts/setup.sh build riscv64
	$(LAB_BUILD)
	$(LAB) validate --kernel riscv64
	$(LAB) validate-triage --kernel 6.12-riscv64
	$(LAB) validate-triage --kernel 7.2-riscv64

# The second program: Parquet tables of many crashes, and reports.
fleet: setup-build
	cargo build --release --locked -p pagehaul-fleet

# The Python package, for Python 3.9 and later and glibc 2.17 and later, with both programs as static files. What they share with the
# extension module is built twice: a module for glibc cannot be linked of objects for musl.
wheel: setup-build setup-demo
	scripts/setup.sh $(ARCH)
	programs=$$(scripts/static.sh programs $(ARCH)) && \
	scripts/wheel.sh "$${PAGEHAUL_PROFILE:-release}" $(ARCH) $$programs

test-wheel: setup-demo
	scripts/test_wheel.sh

# Clicks in the web page of `triage`. Installs Chromium: 414 MB with what it needs.
test-pages: setup-build
	scripts/setup.sh browser
	scripts/test_pages.sh

# A Spark cluster of two workers, one of which is killed. Installs Spark, 700 MB.
test-spark: setup-demo
	scripts/setup.sh spark
	scripts/test_spark.sh

packages: setup
	[ $(ARCH) = $$(uname -m) ] || scripts/setup.sh $(ARCH) emulator
	scripts/packages.sh $(ARCH)

# Everything that a release attaches to its tag, in $(TARGET)/release-VERSION: RELEASING.md. ARCH="x86_64 aarch64" makes both.
release: setup
	[ "$(ARCH)" = "$$(uname -m)" ] || scripts/setup.sh $(ARCH) emulator
	scripts/release.sh $(ARCH)

# Builds the packages twice, in different places, and compares them byte for byte.
test-reproducible: setup
	scripts/test_reproducible.sh

# Installs and removes both packages in a clean Debian root.
test-packages: setup
	scripts/test_packages.sh

# Captures to a real S3 server, through a network with faults. Not part of `make test`: building the server needs Go and two minutes
# of a CPU.
test-store: setup
	cargo build --locked -p pagehaul-fleet
	server=$$(scripts/versitygw.sh) && PAGEHAUL_VERSITYGW=$$server cargo test --locked -p pagehaul --test object_store -- --ignored

# A capture kernel of 1990 that sends its dump to the host, to the same server and over ssh.
test-upload: setup
	$(LAB_BUILD)
	server=$$(scripts/versitygw.sh) && $(LAB) kdump-upload --server "$$server"

# Debian 12 and 13 guests with their own kdump-tools: with pagehaul-kdump installed, to the disk and over ssh, and with it removed.
# KDUMP_TARGET=nfs: to an NFS server, with the package installed. KDUMP_TARGET=encrypted: to the disk, with a file of recipients.
test-kdump: setup
	$(LAB_BUILD)
	deb=$$(scripts/packages.sh pagehaul-kdump | sed -n 1p) && $(LAB) kdump-tools --suite $(KDUMP_SUITE) \
	--target $(KDUMP_TARGET) --deb "$$deb"

# Debian 13 guests with one fault each in their kdump: `kdump check` says before the crash what is left of it.
test-kdump-faults: setup
	$(LAB_BUILD)
	deb=$$(scripts/packages.sh pagehaul-kdump | sed -n 1p) && $(LAB) kdump-faults --deb "$$deb"

# Debian 13 guests whose kdump is Fedora's and openSUSE's, from directories with their sources.
test-kdump-dracut: setup
	$(LAB_BUILD)
	rpm=$$(scripts/packages.sh pagehaul-kdump | sed -n 2p) && \
	$(LAB) kdump-dracut --distribution fedora --sources "$(PAGEHAUL_KDUMP_UTILS)" --rpm "$$rpm" && \
	$(LAB) kdump-dracut --distribution suse --sources "$(PAGEHAUL_SUSE_KDUMP)" --rpm "$$rpm"

# A Debian 13 guest whose processes crash: with its own systemd-coredump, with pagehaul-core installed, and with it removed.
# CORE_HANDLER="--memory 256M,1G,4G --rounds 3" measures more: it takes 14 GiB of memory and an hour.
test-core-handler: setup
	$(LAB_BUILD)
	deb=$$(scripts/packages.sh pagehaul-core | sed -n 1p) && $(LAB) core-handler --deb "$$deb" $(CORE_HANDLER)

man:
	cargo run --release --locked -p pagehaul -- man $(TARGET)/man
	mkdir -p $(TARGET)/completions
	for shell in bash zsh fish; do \
		cargo run --release --locked --quiet -p pagehaul -- completions $$shell > $(TARGET)/completions/pagehaul.$$shell; \
	done

fuzz: setup
	fuzz/run.sh $(SECONDS)

bench: setup
	scripts/bench.sh "$(VMCORE)"
	$(MAKE) bench-process

bench-read: setup
	scripts/bench_read.sh "$(VMCORE)"

bench-scan: setup
	cargo build --release --locked -p pagehaul
	cargo build --release --locked -p pagehaul-kernel --example scan_rate
	python3 bench/scan.py "$(VMCORE)" --pagehaul $(TARGET)/release/pagehaul --scan-rate $(TARGET)/release/examples/scan_rate

# Processes of 100 MiB to 8 GiB. The largest writes to a disk: memory would not hold its outputs.
bench-process: setup
	scripts/bench_process.sh
	scripts/bench_process.sh --add --mib 8000 --rounds 1 --scratch /var/tmp
	$(TARGET)/release/lab validate-process --only large --mib 800 --record docs/benchmarks/process-proof.md
	$(TARGET)/release/lab validate-process --only large --mib 8000 --scratch /var/tmp --record docs/benchmarks/process-proof.md

lab-capture-kernel: setup
	cargo run --release --locked -p lab -- capture-kernel

lab-power-cut: setup
	cargo build --release --locked -p pagehaul -p lab
	$(TARGET)/release/lab power-cut

# Both boot guests for minutes. Their reports are kept in docs/experiments/.
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

clean:
	cargo clean
