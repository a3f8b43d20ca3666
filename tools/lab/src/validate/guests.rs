//! The guests that `lab validate` crashes, and several at a time.

use crate::child::end_with_parent;
use crate::kernels::{self, Kernel};
use crate::tools::Tools;
use crate::{Architecture, build, debuginfo, oracle};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// Guests of other memory layouts: kernel, CPU model, additions to the kernel's command line.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("6.1", "max", ""),
    ("6.1", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
    ("6.12", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
];
/// arm64 with pointer authentication, and from 6.12 with LPA2 (addresses of 52 bits). QEMU's own cipher for pointer
/// authentication is faster than the architected one.
const ARM64_MAX: &str = "max,pauth-impdef=on";
/// arm64 guests among `all`: addresses of 52 bits with pages of 4 KiB, and of 47 bits with pages of 16 KiB.
const ARM64_AMONG_ALL: [(&str, Option<&str>); 2] =
    [("6.12-arm64", Some(ARM64_MAX)), ("6.12-arm64-16k", None)];
/// How many are validated at a time. Only one of them runs: while its kernel boots, dumps of the other are checked, which
/// takes longer and keeps one CPU busy.
const AT_A_TIME: usize = 2;

/// A guest to crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Name of its kernel series.
    pub kernel: String,
    /// QEMU's CPU model instead of the architecture's default.
    pub cpu: Option<String>,
    /// Additions to the kernel's command line.
    pub append: String,
}

impl Guest {
    fn is_arm64(&self) -> bool {
        kernels::series(&self.kernel).is_ok_and(|series| series.architecture == Architecture::Arm64)
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.kernel.as_str(), self.cpu.as_deref().unwrap_or_default(), self.append.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        out.write_str(&words.join(" "))
    }
}

/// Returns the guests that `kernel` stands for: `all` kernels and variants of x86_64 and two guests of arm64, all of `arm64`,
/// or the one of this series.
pub fn guests(kernel: &str, cpu: Option<&str>, append: &str) -> Vec<Guest> {
    let guest = |kernel: &str, cpu: Option<&str>, append: &str| Guest {
        kernel: kernel.into(),
        cpu: cpu.map(str::to_owned),
        append: append.into(),
    };
    let plain = |architecture| kernels::names(architecture).map(|name| guest(name, cpu, append));
    match kernel {
        "all" => {
            let variants = VARIANTS.map(|(kernel, cpu, append)| guest(kernel, Some(cpu), append));
            let arm64 = ARM64_AMONG_ALL.map(|(kernel, cpu)| guest(kernel, cpu, ""));
            plain(Architecture::X86_64).chain(variants).chain(arm64).collect()
        }
        "arm64" => {
            let max = kernels::names(Architecture::Arm64).map(|name| guest(name, Some(ARM64_MAX), append));
            max.chain(plain(Architecture::Arm64)).collect()
        }
        _ => vec![guest(kernel, cpu, append)],
    }
}

/// Validates several guests, each in another process of this program, and prints what each has printed when it ends.
pub(super) fn validate_all(guests: &[Guest], pagehaul: &Path, command_lines: bool) -> Result<()> {
    let mut guests = guests.to_vec();
    if command_lines {
        // makedumpfile runs on x86_64 only.
        guests.retain(|guest| !guest.is_arm64());
    }
    if !build::has_target(Architecture::Arm64) && guests.iter().any(|guest| !guest.is_arm64()) {
        guests.retain(|guest| !guest.is_arm64());
        println!(
            "not tested: arm64 guests; Rust has no target for them: `scripts/setup.sh build aarch64` adds it"
        );
    }
    prepare(&guests)?;
    let (next, failed) = (Mutex::new(guests.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(guest) = take() {
                    if let Err(why) = run(guest, pagehaul, command_lines) {
                        println!("FAIL {guest}: {why:#}");
                        failed
                            .lock()
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                            .push(guest.to_string());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !failed.is_empty() {
        bail!("validation failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Fetches and builds what the guests need, once, before several processes look for it.
fn prepare(guests: &[Guest]) -> Result<()> {
    for guest in guests {
        let kernel = Kernel::get(&guest.kernel)?;
        debuginfo::get(&kernel)?;
        Tools::with_qemu_for(kernel.architecture)?;
        build::guest(kernel.architecture)?;
        build::pagehaul(kernel.architecture)?;
    }
    oracle::python()?;
    oracle::makedumpfile()?;
    oracle::older_makedumpfiles().map(drop)
}

/// Validates one guest in another process, then prints all its output.
fn run(guest: &Guest, pagehaul: &Path, command_lines: bool) -> Result<()> {
    let started = Instant::now();
    let (mut reader, writer) = std::io::pipe().context("making a pipe")?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command
        .args(["validate", "--kernel", &guest.kernel, "--append", &guest.append, "--pagehaul"])
        .arg(pagehaul);
    command.args(guest.cpu.iter().flat_map(|cpu| ["--cpu", cpu]));
    command.args(command_lines.then_some("--command-lines"));
    command.stdout(writer.try_clone().context("making a pipe")?).stderr(writer);
    end_with_parent(&mut command, libc::SIGTERM);
    let mut child = command.spawn().context("starting the lab again")?;
    // Closes this end of the pipe: the output ends when the other process does.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("reading the lab's output")?;
    let status = child.wait().context("waiting for the lab")?;
    let mut out = std::io::stdout().lock();
    out.write_all(&output).and_then(|()| out.flush()).context("printing")?;
    if !status.success() {
        bail!("see above");
    }
    writeln!(out, "     {guest}: {} s", started.elapsed().as_secs()).context("printing")
}

#[cfg(test)]
mod tests {
    use super::guests;

    #[test]
    fn names_stand_for_guests() {
        let names =
            |kernel: &str| guests(kernel, None, "").iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = names("all");
        assert_eq!(all.iter().filter(|name| name.contains("arm64")).count(), 2);
        assert!(all.contains(&"6.12 Haswell-noTSX hugetlb_free_vmemmap=on".to_owned()), "{all:?}");
        let arm64 = names("arm64");
        assert!(arm64.iter().all(|name| name.contains("arm64")), "{arm64:?}");
        for guest in ["6.1-arm64", "6.1-arm64 max,pauth-impdef=on", "6.12-arm64-16k max,pauth-impdef=on"] {
            assert!(arm64.contains(&guest.to_owned()), "{arm64:?}");
        }
        assert_eq!(names("6.1"), ["6.1"]);
    }
}
