//! The host programs that the lab needs, unpacked into the cache.
//!
//! QEMU comes from bookworm-backports, because QEMU 7.2 of Debian 12 corrupts guests that run 6.12. It is unpacked with
//! all its libraries and runs with its own loader, without installation: the machine's packages do not change, and root
//! is not needed.

use crate::Architecture;
use crate::apt::Apt;
use crate::cache::{self, Key};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SUITES: [&str; 2] = ["bookworm", "bookworm-backports"];
const PACKAGES: [&str; 4] = ["qemu-system-x86", "e2fsprogs", "xz-utils", "zstd"];
/// The last one is that of the NFS server.
const LIBRARIES: [&str; 3] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/ganesha"];
const PROGRAM_DIRECTORIES: [&str; 4] = ["usr/bin", "bin", "usr/sbin", "sbin"];

/// QEMU for arm64 guests.
const ARM64_PACKAGES: [&str; 1] = ["qemu-system-arm"];
/// QEMU for riscv64 guests, and their firmware.
const RISCV64_PACKAGES: [&str; 2] = ["qemu-system-riscv", "opensbi"];

/// The unpacked programs.
#[derive(Clone, Debug)]
pub struct Tools {
    tree: Tree,
    /// QEMU for the guests.
    qemu: Tree,
    architecture: Architecture,
}

/// Debian packages, unpacked with all their libraries.
#[derive(Clone, Debug)]
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Returns where a file of the packages is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns a command that runs a program of the tree with the tree's loader.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        let path = PROGRAM_DIRECTORIES
            .iter()
            .map(|directory| self.0.join(directory).join(program))
            .find(|path| path.exists())
            .with_context(|| format!("{program} is not among the lab's tools in {}", self.0.display()))?;
        let libraries: Vec<String> =
            LIBRARIES.iter().map(|directory| self.0.join(directory).display().to_string()).collect();
        // Not through lib64, where it is a link to the machine's loader.
        let mut command = Command::new(self.0.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(libraries.join(":")).arg(path);
        Ok(command)
    }
}

impl Tools {
    /// Fetches and unpacks the programs, unless the cache has them.
    pub fn get() -> Result<Tools> {
        Tools::with_qemu_for(Architecture::X86_64)
    }

    /// Fetches and unpacks the programs and QEMU for guests of this architecture, unless the cache has them.
    pub fn with_qemu_for(architecture: Architecture) -> Result<Tools> {
        let tree = unpacked(&SUITES, &PACKAGES)?;
        let qemu = match architecture {
            Architecture::X86_64 => tree.clone(),
            Architecture::Arm64 => unpacked(&SUITES, &ARM64_PACKAGES)?,
            Architecture::Riscv64 => unpacked(&SUITES, &RISCV64_PACKAGES)?,
        };
        Ok(Tools { tree, qemu, architecture })
    }

    /// Returns the architecture of the guests that [`qemu`](Self::qemu) runs.
    pub(crate) fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Returns a command that runs QEMU.
    pub(crate) fn qemu(&self) -> Result<Command> {
        let mut command = self.qemu.command(self.architecture.qemu().0)?;
        for firmware in ["qemu", "seabios"] {
            command.arg("-L").arg(self.qemu.0.join("usr/share").join(firmware));
        }
        Ok(command)
    }

    /// Returns a command that runs a program of the tree.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.tree.command(program)
    }

    /// Runs a program and returns its output. Its standard error becomes the error.
    pub fn run<S: AsRef<OsStr>>(&self, program: &str, arguments: &[S]) -> Result<String> {
        let mut command = self.command(program)?;
        run(command.args(arguments), program)
    }

    /// Reads a file, and decompresses it if its name ends in .xz or .zst.
    pub fn decompress(&self, path: &Path) -> Result<Vec<u8>> {
        let content = fs::read(path).with_context(|| path.display().to_string())?;
        let program = match path.extension().and_then(OsStr::to_str) {
            Some("xz") => "xz",
            Some("zst") => "zstd",
            _ => return Ok(content),
        };
        let mut child = self
            .command(program)?
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {program}"))?;
        let mut input = child.stdin.take().context("the program's input is a pipe")?;
        // From a thread: the program stops reading its input while its output pipe is full.
        let writer = std::thread::spawn(move || input.write_all(&content));
        let output = child.wait_with_output().with_context(|| format!("running {program}"))?;
        if !output.status.success() || !matches!(writer.join(), Ok(Ok(()))) {
            bail!("{}: {}", path.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    /// Returns QEMU's version in one line.
    pub fn qemu_version(&self) -> Result<String> {
        let text = run(self.qemu()?.arg("--version"), "QEMU")?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

/// Returns the tree with these packages of Debian suites, from the cache or the mirror.
pub(crate) fn unpacked(suites: &[&str], packages: &[&str]) -> Result<Tree> {
    let key = Key::default().with(suites.join(" ")).with(packages.join(" ")).short();
    let tree = cache::directory()?.join("tools").join(key);
    cache::once(&tree, |draft| Apt::new(suites, false)?.unpack_closure(packages, draft).map(drop))
        .with_context(|| format!("setting up the host programs {}", packages.join(", ")))?;
    Ok(Tree(tree))
}

/// Runs a program and returns its output. Its standard error becomes the error.
fn run(command: &mut Command, name: &str) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
