//! The guests that `lab validate` crashes, and several at a time.

use super::several::{self, Job};
use crate::kernels::{self, Kernel};
use crate::tools::Tools;
use crate::{Architecture, build, debuginfo, oracle};
use anyhow::Result;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// Guests of other memory layouts: kernel, CPU model, additions to the kernel's command line.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("6.1", "max", ""),
    ("6.1", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
    ("6.12", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
];
/// arm64 with pointer authentication, and from 6.12 with LPA2 (addresses of 52 bits). QEMU's own cipher for pointer
/// authentication is faster than the architected one.
const ARM64_MAX: &str = "max,pauth-impdef=on";
/// arm64 guests among `all`: addresses of 52 bits, and of 48 bits, on which makedumpfile can be compared.
const ARM64_AMONG_ALL: [(&str, Option<&str>); 2] =
    [("6.12-arm64", Some(ARM64_MAX)), ("6.1-arm64", Some(ARM64_MAX))];

/// x86_64 kernels among the `few`: the oldest and the newest. `make test` crashes those between for other validations.
const FEW: [&str; 2] = ["5.10", "7.2"];

/// riscv64 with addresses of 39 bits (Sv39); without it the CPU has 57.
const RISCV64_SV39: &str = "rv64,sv57=off,sv48=off";

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
    fn architecture(&self) -> Architecture {
        kernels::series(&self.kernel).map_or_else(|_| Architecture::default(), |series| series.architecture)
    }

    fn job(&self, pagehaul: &Path, command_lines: bool) -> Job {
        let words = ["validate", "--kernel", &self.kernel, "--append", &self.append];
        let words = words.into_iter().chain(self.cpu.iter().flat_map(|cpu| ["--cpu", cpu]));
        let words = words.chain(command_lines.then_some("--command-lines"));
        let mut arguments: Vec<OsString> = words.map(OsString::from).collect();
        arguments.extend(["--pagehaul".into(), pagehaul.into()]);
        Job { name: self.to_string(), arguments }
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.kernel.as_str(), self.cpu.as_deref().unwrap_or_default(), self.append.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        out.write_str(&words.join(" "))
    }
}

/// Returns the guests that `kernel` stands for: `all` kernels and variants of x86_64 and two guests of arm64, a `few` of these,
/// all of `arm64` or `riscv64`, or the one of this series.
pub fn guests(kernel: &str, cpu: Option<&str>, append: &str) -> Vec<Guest> {
    let guest = |kernel: &str, cpu: Option<&str>, append: &str| Guest {
        kernel: kernel.into(),
        cpu: cpu.map(str::to_owned),
        append: append.into(),
    };
    let plain = |architecture| kernels::names(architecture).map(|name| guest(name, cpu, append));
    let some_arm64 = ARM64_AMONG_ALL.map(|(kernel, cpu)| guest(kernel, cpu, ""));
    match kernel {
        "few" => FEW
            .map(|name| guest(name, cpu, append))
            .into_iter()
            .chain(some_arm64.into_iter().take(1))
            .collect(),
        "all" => {
            let variants = VARIANTS.map(|(kernel, cpu, append)| guest(kernel, Some(cpu), append));
            plain(Architecture::X86_64).chain(variants).chain(some_arm64).collect()
        }
        "arm64" => {
            let max = kernels::names(Architecture::Arm64).map(|name| guest(name, Some(ARM64_MAX), append));
            max.chain(plain(Architecture::Arm64)).collect()
        }
        "riscv64" => {
            let sv39 =
                kernels::names(Architecture::Riscv64).map(|name| guest(name, Some(RISCV64_SV39), append));
            sv39.chain(plain(Architecture::Riscv64)).collect()
        }
        _ => vec![guest(kernel, cpu, append)],
    }
}

/// Validates several guests at a time.
pub(super) fn validate_all(guests: &[Guest], pagehaul: &Path, command_lines: bool) -> Result<()> {
    let mut guests = guests.to_vec();
    if command_lines {
        // makedumpfile runs on x86_64 only.
        guests.retain(|guest| guest.architecture() == Architecture::X86_64);
    }
    if !build::has_target(Architecture::Arm64)
        && guests.iter().any(|guest| guest.architecture() == Architecture::X86_64)
    {
        guests.retain(|guest| guest.architecture() != Architecture::Arm64);
        println!(
            "not tested: arm64 guests; Rust has no target for them: `scripts/setup.sh build aarch64` adds it"
        );
    }
    prepare(&guests)?;
    let jobs = guests.iter().map(|guest| guest.job(pagehaul, command_lines));
    several::run(&jobs.collect::<Vec<_>>())
}

/// Fetches and builds what the guests need, once, before several processes look for it.
fn prepare(guests: &[Guest]) -> Result<()> {
    for guest in guests {
        let kernel = Kernel::get(&guest.kernel)?;
        debuginfo::get(&kernel)?;
        Tools::with_qemu_for(kernel.architecture)?;
        build::guest(kernel.architecture)?;
        if kernel.architecture.runs_pagehaul() {
            build::pagehaul(kernel.architecture)?;
        }
    }
    oracle::python()?;
    oracle::makedumpfile()?;
    oracle::older_makedumpfiles().map(drop)
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
        let few = names("few");
        assert_eq!(few.len(), 3);
        assert!(few.iter().all(|name| all.contains(name)), "{few:?}");
        let arm64 = names("arm64");
        assert!(arm64.iter().all(|name| name.contains("arm64")), "{arm64:?}");
        for guest in ["6.1-arm64", "6.1-arm64 max,pauth-impdef=on", "6.12-arm64-16k max,pauth-impdef=on"] {
            assert!(arm64.contains(&guest.to_owned()), "{arm64:?}");
        }
        assert_eq!(names("riscv64").len(), 4);
        assert!(names("riscv64").iter().all(|name| name.contains("-riscv64")));
        assert_eq!(names("6.1"), ["6.1"]);
    }
}
