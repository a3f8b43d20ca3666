//! Building the programs that go into a guest: one static file each.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MUSL: &str = "x86_64-unknown-linux-musl";
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// The init of the guests: all Rust.
pub fn guest() -> Result<PathBuf> {
    static_program("lab-guest", "", has_target(MUSL))
}

/// pagehaul itself, as capture kernels have it. Some of its codecs are C, so musl's target alone is not enough: its compiler
/// (Debian's musl-tools) must be there too.
pub fn pagehaul() -> Result<PathBuf> {
    static_program("pagehaul", "", has_target(MUSL) && runs("musl-gcc", &["--version"]))
}

/// pagehaul with what guests that work have a use for: reclaim, latency, vmalloc.
pub fn pagehaul_for_work() -> Result<PathBuf> {
    static_program("pagehaul", "stalls", has_target(MUSL) && runs("musl-gcc", &["--version"]))
}

/// Builds a package of this workspace as a static program, and gives its path.
fn static_program(package: &str, features: &str, with_musl: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = if with_musl { MUSL } else { GLIBC };
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--profile", "capture", "--target", target, "--package", package])
        .args(["--no-default-features", "--features", features])
        .args(["--bin", package, "--message-format", "json-render-diagnostics"])
        .current_dir(&workspace)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if target == GLIBC {
        // Without the musl target installed, glibc's static archive (part of libc6-dev) does as well.
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    }
    let output = command.output().context("running cargo")?;
    if !output.status.success() {
        bail!("building {package} for {target} failed: see cargo's messages above");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut paths = text.lines().filter_map(executable);
    paths.next_back().with_context(|| format!("cargo built no program {package}"))
}

/// The path in one of cargo's messages about what it built.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn has_target(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).exists())
}
