//! How much memory to reserve, and as which `crashkernel=` parameters.

use serde::Serialize;

use crate::checks::mib;
use crate::config::Stack;
use crate::crashkernel::{THREAD, default_reservation, recommended};
use crate::release::Release;

const MIB: u64 = 1 << 20;
/// x86_64 aligns what it reserves to this (`CRASH_ALIGN`).
const ALIGN: u64 = 16 * MIB;
/// What the capture kernel takes for each of its CPUs, rounded up: with 7 CPUs, Linux 6.12 has 9 MiB less available than with
/// one (docs/experiments/2026-11-22-kdump.md).
const KERNEL_CPU: u64 = 2 * MIB;
/// CPUs up to which that was measured.
const MEASURED_CPUS: u32 = 7;
/// Kernels before 5.2 reserve below this address (9ca5c8e632ce raised it to 4 GiB), unless `,high` (3.9, 55a20ee7804a) is given. 5.2
/// also looks above where there is no room below (b9ac3849af41).
const LOW: u64 = 896 * MIB;
/// The least that is worth to be taken from user memory instead.
const LEAST_CMA: u64 = 64 * MIB;

/// Memory to reserve for a capture kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reserve {
    /// Bytes, without the low memory that a reservation above 4 GiB adds.
    pub bytes: u64,
    /// Parameters for the kernel's command line.
    pub parameters: Vec<String>,
    /// Parameters that take less from the running system, if its kernel has them.
    pub alternative: Option<Vec<String>>,
    /// Why.
    pub reasons: Vec<String>,
}

/// Decides what a capture kernel with `cpus` CPUs needs on a machine with `ram` bytes. `has_cma` says whether the running kernel
/// can reserve with `,cma`, and `user_excluded` whether dumps lack user memory.
pub fn reserve(
    stack: Stack,
    ram: u64,
    cpus: u32,
    release: &Release,
    has_cma: bool,
    user_excluded: bool,
) -> Reserve {
    let default = recommended(stack, ram).unwrap_or(192 * MIB);
    let more = u64::from(cpus.saturating_sub(1)) * (THREAD + KERNEL_CPU);
    let bytes = (default + more).next_multiple_of(ALIGN);
    let mut reasons = vec![format!(
        "{} is what {} reserves for a machine with {} and one CPU in the capture kernel ({})",
        mib(default),
        stack.name(),
        if ram < 10 << 30 { mib(ram) } else { format!("{}G", ram.div_ceil(1 << 30)) },
        default_reservation(stack)
    )];
    if cpus > 1 {
        reasons.push(format!(
            "each further CPU takes up to {} in pagehaul (a bound) and {} in the kernel ({}): {} for {}",
            mib(THREAD),
            mib(KERNEL_CPU),
            if cpus <= MEASURED_CPUS { "measured" } else { "estimated: measured up to 7 CPUs" },
            mib(more),
            cpus - 1
        ));
    }
    let parameters = if bytes > LOW && !release.is_at_least(5, 2) {
        reasons.push("before Linux 5.2 more than 896M has to be asked for above 4 GiB".into());
        vec![format!("crashkernel={},high", mib(bytes)), "crashkernel=256M,low".into()]
    } else {
        if bytes > LOW {
            reasons.push(
                "without room for it below 4 GiB the kernel reserves it above, and 256M of low memory in addition".into(),
            );
        }
        vec![format!("crashkernel={}", mib(bytes))]
    };
    // `,cma` is new in 6.17 (35c18f2933c5 parses it, ab475510e042 reserves). Its pages hold user memory of the running
    // system, which the dump then lacks.
    let alternative = (has_cma && user_excluded && release.is_at_least(6, 17) && more >= LEAST_CMA).then(|| {
        reasons.push(
            "with ,cma the running system uses that part for user memory; a crash then waits 10 s, and DMA in flight may \
             write to it"
                .into(),
        );
        let fixed = mib(default.next_multiple_of(ALIGN));
        vec![format!("crashkernel={fixed}"), format!("crashkernel={},cma", mib(more.next_multiple_of(ALIGN)))]
    });
    Reserve { bytes, parameters, alternative, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn parameters(ram: u64, cpus: u32, release: &str) -> Vec<String> {
        reserve(Stack::KdumpTools, ram, cpus, &Release(release.into()), false, true).parameters
    }

    #[test]
    fn cpus_add_to_the_distributions_default() {
        assert_eq!(parameters(8 * GIB, 1, "6.1.0"), ["crashkernel=192M"]);
        assert_eq!(parameters(8 * GIB, 4, "6.1.0"), ["crashkernel=224M"]);
        assert_eq!(parameters(8 * GIB, 128, "6.1.0"), ["crashkernel=1472M"]);
        assert_eq!(parameters(8 * GIB, 128, "5.1.0"), ["crashkernel=1472M,high", "crashkernel=256M,low"]);
        // Below the first range of the default.
        assert_eq!(parameters(GIB / 4, 1, "6.1.0"), ["crashkernel=192M"]);
    }

    #[test]
    fn cma_is_offered_where_it_loses_nothing() {
        let of = |release: &str, has_cma, user_excluded| {
            let release = Release(release.into());
            reserve(Stack::KdumpUtils, 8 * GIB, 16, &release, has_cma, user_excluded).alternative
        };
        let offered = Some(vec!["crashkernel=256M".to_owned(), "crashkernel=160M,cma".to_owned()]);
        assert_eq!(of("7.2.12", true, true), offered);
        assert_eq!(of("7.2.12", false, true), None);
        assert_eq!(of("7.2.12", true, false), None);
        assert_eq!(of("6.12.107", true, true), None);
    }
}
