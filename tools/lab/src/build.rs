//! Builds the programs that go into a guest, one static file each, and test programs.

use crate::Architecture;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MUSL: &str = Architecture::X86_64.musl();
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// Builds the init of the guests. It is all Rust.
pub fn guest(architecture: Architecture) -> Result<PathBuf> {
    match architecture {
        Architecture::X86_64 => static_program("lab-guest", "", has_target(Architecture::X86_64)),
        Architecture::Arm64 => cross_program("lab-guest", ""),
    }
}

/// Builds pagehaul as capture kernels have it. Some of its codecs are C, so the musl target alone is not enough: it also
/// takes musl's compiler (Debian's musl-tools).
pub fn pagehaul(architecture: Architecture) -> Result<PathBuf> {
    match architecture {
        Architecture::X86_64 => static_program(
            "pagehaul",
            "",
            has_target(Architecture::X86_64) && runs("musl-gcc", &["--version"]),
        ),
        Architecture::Arm64 => cross_program("pagehaul", ""),
    }
}

/// Builds a program of this workspace for arm64, with the compiler of Debian's gcc-aarch64-linux-gnu and Rust's own linker, as
/// scripts/static.sh does.
fn cross_program(package: &str, features: &str) -> Result<PathBuf> {
    let target = Architecture::Arm64.musl();
    if !has_target(Architecture::Arm64) {
        bail!("Rust has no target {target}: `scripts/setup.sh build aarch64` adds it");
    }
    let mut command = cargo();
    command
        .args(["--profile", "capture", "--target", target, "--package", package, "--bin", package])
        .args(["--no-default-features", "--features", features])
        .env("CC_aarch64_unknown_linux_musl", "aarch64-linux-gnu-gcc")
        .env("AR_aarch64_unknown_linux_musl", "aarch64-linux-gnu-ar")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    run(command, &format!("{package} for {target}"))
}

/// Builds pagehaul with the commands that workloads use: reclaim, latency, vmalloc.
pub fn pagehaul_for_workload(architecture: Architecture) -> Result<PathBuf> {
    const FEATURES: &str = "stalls";
    match architecture {
        Architecture::X86_64 => static_program(
            "pagehaul",
            FEATURES,
            has_target(Architecture::X86_64) && runs("musl-gcc", &["--version"]),
        ),
        Architecture::Arm64 => cross_program("pagehaul", FEATURES),
    }
}

/// Builds pagehaul with `kdump plan`.
pub fn pagehaul_for_plan() -> Result<PathBuf> {
    static_program(
        "pagehaul",
        "kdump-setup",
        has_target(Architecture::X86_64) && runs("musl-gcc", &["--version"]),
    )
}

/// Builds pagehaul-fleet for this machine.
pub fn fleet() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["--package", "pagehaul-fleet", "--bin", "pagehaul-fleet"]);
    run(command, "pagehaul-fleet")
}

/// Builds an example of a package in release mode for this machine, and returns its path.
pub fn example(package: &str, name: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["--release", "--package", package, "--example", name]);
    run(command, name)
}

/// Builds a package of this workspace as a static program, and returns its path.
fn static_program(package: &str, features: &str, with_musl: bool) -> Result<PathBuf> {
    let target = if with_musl { MUSL } else { GLIBC };
    let mut command = cargo();
    command
        .args(["--profile", "capture", "--target", target, "--package", package, "--bin", package])
        .args(["--no-default-features", "--features", features]);
    if target == GLIBC {
        // Without the musl target installed, glibc's static archive (part of libc6-dev) does as well.
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    }
    run(command, &format!("{package} for {target}"))
}

/// Returns a `cargo build` in this workspace that names what it has built.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--locked", "--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

/// Runs a build and returns the path of the program.
fn run(mut command: Command, what: &str) -> Result<PathBuf> {
    let output = command.output().context("running cargo")?;
    if !output.status.success() {
        bail!("building {what} failed: see cargo's messages above");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut paths = text.lines().filter_map(executable);
    paths.next_back().with_context(|| format!("cargo built no program {what}"))
}

/// Returns the path of the program that one of cargo's messages reports.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Whether Rust can build static programs for an architecture.
pub fn has_target(architecture: Architecture) -> bool {
    let target = architecture.musl();
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).exists())
}
