use super::expected::Expected;
use super::mib::mib;
use crate::chain::Examination;
use crate::config::{Config, CpuLimit, Stack};
use crate::crashkernel::THREAD;
use crate::facts::Facts;
use crate::finding::Finding;

/// What a capture takes at most besides its threads (docs/architecture.md, "Invariants").
const BASE: u64 = 32 << 20;
/// What a capture kernel and its initramfs take of the reservation: 6.12 at 192M has 126 MiB available at boot.
const KERNEL: u64 = 80 << 20;

pub(super) fn check(config: &Config, facts: &Facts, expected: &Expected, found: &mut Examination) {
    let cpus = config.capture_cpus().unwrap_or(facts.cpus).min(facts.cpus.max(1));
    if let Some(wanted) = expected.cpus.filter(|wanted| *wanted > cpus) {
        found.push(Finding::warning(
            "few-cpus",
            format!("the capture kernel starts {cpus} of the {wanted} CPUs that are planned"),
            "packing pages takes most of a capture's time, and gets faster with each CPU until the disk is the limit",
            more_cpus(config, facts, wanted),
        ));
    }
    let reserved = facts.reserved.unwrap_or(0);
    let needed = KERNEL + BASE + THREAD * u64::from(cpus);
    if cpus > 1 && reserved > 0 && reserved < needed {
        found.push(Finding::warning(
            "reservation-limits-threads",
            format!(
                "{} are reserved; {cpus} threads of pagehaul need {} with the kernel",
                mib(reserved),
                mib(needed)
            ),
            "pagehaul uses fewer threads where memory is short",
            format!("reserve {}, or set nr_cpus lower", mib(needed)),
        ));
    }
    // Linux 6.9 (5c5682b9f87a) finds the boot CPU itself, and has no disable_cpu_apicid any more.
    if cpus > 1 && !facts.release.is_at_least(6, 9) {
        check_boot_cpu(config, facts, found);
    }
}

/// How the capture kernel gets `wanted` CPUs.
fn more_cpus(config: &Config, facts: &Facts, wanted: u32) -> String {
    let limits = config.cpu_limits();
    let mut steps: Vec<String> = Vec::new();
    for CpuLimit { word, setting, .. } in limits.iter().filter(|limit| limit.cpus < wanted) {
        let step = match word.split_once('=') {
            Some(_) if *setting == Stack::SUSE_CPUS => format!("set {setting}={wanted}"),
            Some(("nr_cpus" | "nr-cpus", _)) => {
                format!("set nr_cpus={wanted} in place of {word} in {setting}")
            }
            _ => format!("remove {word} from {setting}"),
        };
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    if steps.is_empty() {
        return format!("plan with --capture-cpus {}: the machine has no more", facts.cpus.max(1));
    }
    format!("{} ({})", steps.join(", "), config.stack.command_line_file())
}

fn check_boot_cpu(config: &Config, facts: &Facts, found: &mut Examination) {
    let given = config.append.iter().rev().find_map(|word| word.strip_prefix("disable_cpu_apicid="));
    let why = "a crash on another CPU than the boot CPU resets the machine when the capture kernel starts the boot CPU";
    let id = facts.boot_apic_id.map_or("ID".to_owned(), |id| id.to_string());
    let fix = format!(
        "append disable_cpu_apicid={id} to the capture kernel's command line in {}",
        config.stack.command_line_file()
    );
    match (given, facts.boot_apic_id) {
        // Fedora's and openSUSE's scripts append it themselves.
        (None, _) if config.stack != Stack::KdumpTools => {}
        (None, _) => {
            let what = format!(
                "the capture kernel starts {cpus} CPUs without disable_cpu_apicid",
                cpus = facts.cpus
            );
            found.push(Finding::problem("no-disable-cpu-apicid", what, why, fix));
        }
        (Some(given), Some(id)) if given.parse() != Ok(id) => {
            let what =
                format!("disable_cpu_apicid={given} does not name the boot CPU, whose APIC ID is {id}");
            found.push(Finding::problem("wrong-disable-cpu-apicid", what, why, fix));
        }
        _ => {}
    }
}
