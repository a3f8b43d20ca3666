//! Builds the programs that go into a guest, one static file each, and test programs.

use crate::Architecture;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MUSL: &str = Architecture::X86_64.target();
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// Builds the init of the guests. It is all Rust.
pub fn guest(architecture: Architecture) -> Result<PathBuf> {
    match architecture {
        // `make demo` has built it with everything else.
        Architecture::X86_64 if let Some(built) = std::env::var_os("PAGEHAUL_LAB_GUEST") => Ok(built.into()),
        Architecture::X86_64 => static_program("capture", "lab-guest", "", has_target(Architecture::X86_64)),
        Architecture::Arm64 | Architecture::Riscv64 => {
            cross_program("capture", architecture, "lab-guest", "")
        }
    }
}

/// Builds pagehaul as capture kernels have it. Some of its codecs are C, so the musl target alone is not enough: it also
/// takes musl's compiler (Debian's musl-tools).
pub fn pagehaul(architecture: Architecture) -> Result<PathBuf> {
    match architecture {
        Architecture::X86_64 => static_program("capture", "pagehaul", "", has_musl()),
        Architecture::Arm64 | Architecture::Riscv64 => cross_program("capture", architecture, "pagehaul", ""),
    }
}

/// Whether C code is compiled for musl here: the codecs are C.
fn has_musl() -> bool {
    has_target(Architecture::X86_64) && runs("musl-gcc", &["--version"])
}

/// Builds a program of this workspace for another architecture, with the C compiler of Debian's package for it.
fn cross_program(
    profile: &str,
    architecture: Architecture,
    package: &str,
    features: &str,
) -> Result<PathBuf> {
    let target = architecture.target();
    if !has_target(architecture) {
        bail!("Rust has no target {target}: `{}` adds it", set_up(architecture));
    }
    let mut command = cross_cargo(architecture, "build");
    command.args(["--profile", profile, "--target", target, "--package", package, "--bin", package]).args([
        "--no-default-features",
        "--features",
        features,
    ]);
    run(command, &format!("{package} for {target}"))
}

/// Returns a cargo command that compiles C for another architecture, and links with Rust's own linker to musl (as
/// scripts/static.sh does) or with the C compiler to glibc.
fn cross_cargo(architecture: Architecture, subcommand: &str) -> Command {
    let (target, triplet) = (architecture.target(), architecture.triplet());
    let compiler = format!("{triplet}-gcc");
    let name = target.replace('-', "_");
    let cargo_target = format!("CARGO_TARGET_{}", name.to_uppercase());
    let mut command = cargo(subcommand);
    command.env(format!("CC_{name}"), &compiler).env(format!("AR_{name}"), format!("{triplet}-ar"));
    if target.ends_with("musl") {
        command.env(format!("{cargo_target}_LINKER"), "rust-lld");
    } else {
        command
            .env(format!("{cargo_target}_LINKER"), &compiler)
            .env(format!("{cargo_target}_RUSTFLAGS"), "-C target-feature=+crt-static");
    }
    command
}

/// The test `core` of pagehaul for arm64, and the programs that it runs.
pub struct ProcessTests {
    /// The test.
    pub test: PathBuf,
    /// The program whose cores it takes.
    pub subject: PathBuf,
    /// pagehaul. The test runs it by this path.
    pub pagehaul: PathBuf,
}

/// Builds the test `core` of pagehaul for arm64. Without debug symbols, which would fill the guest's memory.
pub fn process_tests() -> Result<ProcessTests> {
    let subject = run(process_cargo("build", &["--example", "subject"]), "the subject for arm64")?;
    let test = process_cargo("test", &["--no-run", "--test", "core"]);
    // Cargo builds pagehaul along with the test.
    let built = programs(test, "the test core for arm64")?;
    Ok(ProcessTests { test: named("core-", &built)?, pagehaul: named("pagehaul", &built)?, subject })
}

/// The tests of the crate `pagehaul-process` for arm64, as one program.
pub fn process_unit_tests() -> Result<PathBuf> {
    let mut command = cross_cargo(Architecture::Arm64, "test");
    command.args([
        "--target",
        Architecture::Arm64.target(),
        "--package",
        "pagehaul-process",
        "--lib",
        "--no-run",
    ]);
    run(without_symbols(command), "the tests of pagehaul-process for arm64")
}

/// pagehaul for arm64, and the programs that `validate_process.py` saves.
pub struct ProcessPrograms {
    /// pagehaul.
    pub pagehaul: PathBuf,
    /// Memory with known contents.
    pub subject: PathBuf,
    /// A process that says how long it was stopped.
    pub clocked: PathBuf,
}

/// Builds the programs for the checks of processes in an arm64 guest.
pub fn process_programs() -> Result<ProcessPrograms> {
    let built = process_cargo("build", &["--bin", "pagehaul", "--example", "subject"]);
    let built = programs(built, "pagehaul for arm64")?;
    let mut clocked = cross_cargo(Architecture::Arm64, "build");
    let target = Architecture::Arm64.target();
    clocked.args(["--target", target, "--package", "pagehaul-process", "--example", "clocked"]);
    let clocked = run(without_symbols(clocked), "clocked for arm64")?;
    Ok(ProcessPrograms { pagehaul: named("pagehaul", &built)?, subject: named("subject", &built)?, clocked })
}

/// A cargo command for arm64 on what of pagehaul saves processes.
fn process_cargo(subcommand: &str, what: &[&str]) -> Command {
    let mut command = cross_cargo(Architecture::Arm64, subcommand);
    command
        .args(["--target", Architecture::Arm64.target(), "--package", "pagehaul"])
        .args(["--no-default-features", "--features", "process"])
        .args(what);
    without_symbols(command)
}

fn without_symbols(mut command: Command) -> Command {
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_STRIP", "symbols");
    command
}

/// The program whose name starts so.
fn named(start: &str, built: &[PathBuf]) -> Result<PathBuf> {
    let is = |path: &&PathBuf| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(start))
    };
    built.iter().find(is).cloned().with_context(|| format!("cargo built no program {start}"))
}

/// Builds pagehaul with what a running guest is asked for: `kdump plan`, reclaim, latency, vmalloc. Takes half the time of the
/// binary for capture kernels. With PAGEHAUL_PROFILE, as `make test` sets it, it is the program of the packages, which are built
/// anyway.
pub fn pagehaul_for_running(architecture: Architecture) -> Result<PathBuf> {
    const FEATURES: &str = "kdump-setup,stalls";
    if let (Architecture::X86_64, Ok(profile)) = (architecture, std::env::var("PAGEHAUL_PROFILE")) {
        return static_program(&profile, "pagehaul", "default", has_musl());
    }
    match architecture {
        Architecture::X86_64 => static_program("quick", "pagehaul", FEATURES, has_musl()),
        Architecture::Arm64 | Architecture::Riscv64 => {
            cross_program("quick", architecture, "pagehaul", FEATURES)
        }
    }
}

/// Builds pagehaul for capture kernels with object stores.
pub fn pagehaul_for_upload() -> Result<PathBuf> {
    static_program("capture", "pagehaul", "remote", has_musl())
}

/// Builds pagehaul for this machine, as tests have it.
pub fn pagehaul_of_tests() -> Result<PathBuf> {
    for_tests(&["--bin", "pagehaul", "--example", "subject"], "pagehaul")
}

/// Builds pagehaul-fleet for this machine, as tests have it.
pub fn fleet() -> Result<PathBuf> {
    for_tests(&["--bin", "pagehaul-fleet", "--example", "subject"], "pagehaul-fleet")
}

/// Builds an example for this machine, as tests have it.
pub fn example(name: &str) -> Result<PathBuf> {
    for_tests(&["--example", name], name)
}

/// Builds a program as `cargo test --workspace` does, and returns its path. Cargo gives dependencies the features that the
/// selected packages ask for, those of tests only where a test or an example is selected: with others all is built again.
fn for_tests(what: &[&str], name: &str) -> Result<PathBuf> {
    let mut command = cargo("build");
    command.arg("--workspace").args(what);
    let built = programs(command, name)?;
    let is = |path: &PathBuf| path.file_name().is_some_and(|file| file == name);
    built.into_iter().find(is).with_context(|| format!("cargo built no program {name}"))
}

/// Builds a package of this workspace as a static program, and returns its path.
fn static_program(profile: &str, package: &str, features: &str, with_musl: bool) -> Result<PathBuf> {
    let target = if with_musl { MUSL } else { GLIBC };
    let mut command = cargo("build");
    command.args(["--profile", profile, "--target", target, "--package", package, "--bin", package]).args([
        "--no-default-features",
        "--features",
        features,
    ]);
    if target == GLIBC {
        // Without the musl target installed, glibc's static archive (part of libc6-dev) does as well.
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    }
    run(command, &format!("{package} for {target}"))
}

/// Returns a cargo command in this workspace that names what it has built.
fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([subcommand, "--locked", "--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    // Cargo sets them for a test, and build scripts that look at them (ring's) run again: most of the workspace would be built anew,
    // and programs replaced that other tests run at that moment.
    for (name, _) in std::env::vars_os() {
        let of_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_test) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a build and returns the path of the program.
fn run(command: Command, what: &str) -> Result<PathBuf> {
    programs(command, what)?.pop().with_context(|| format!("cargo built no program {what}"))
}

/// Runs a build and returns the paths of the programs.
fn programs(mut command: Command, what: &str) -> Result<Vec<PathBuf>> {
    let output = command.output().context("running cargo")?;
    if !output.status.success() {
        bail!("building {what} failed: see cargo's messages above");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(executable).collect())
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
    let target = architecture.target();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).exists())
}

/// Returns the command that installs what building for an architecture takes.
pub fn set_up(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "scripts/setup.sh build",
        Architecture::Arm64 => "scripts/setup.sh build aarch64",
        Architecture::Riscv64 => "scripts/setup.sh build riscv64",
    }
}
