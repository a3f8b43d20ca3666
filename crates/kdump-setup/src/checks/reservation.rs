use super::mib::mib;
use crate::chain::Examination;
use crate::config::Stack;
use crate::crashkernel::{Reservation, bytes, default_reservation};
use crate::facts::Facts;
use crate::finding::Finding;

const WHY: &str =
    "a capture kernel needs memory that was set aside at boot; without it a crash leaves no dump";

pub(super) fn check(facts: &Facts, found: &mut Examination) {
    let stack = facts.stack().unwrap_or(Stack::KdumpTools);
    let set = format!(
        "set crashkernel={} on the kernel's command line ({}), and reboot",
        default_reservation(stack),
        boot_loader(stack)
    );
    let Some(reserved) = facts.reserved else {
        let what = "this kernel does not say what it reserves: it has no kexec (CONFIG_CRASH_DUMP)";
        found.push(Finding::problem(
            "no-kexec",
            what,
            WHY,
            "boot a kernel with CONFIG_KEXEC and CONFIG_CRASH_DUMP",
        ));
        return;
    };
    found.saw(format!("{} are reserved (/sys/kernel/kexec_crash_size)", mib(reserved)));
    check_cma(facts, found);
    if facts.has_handover {
        // Since Linux 6.16 (Documentation/core-api/kho).
        found.push(Finding::advice(
            "kexec-handover",
            "kho=on: this kernel keeps memory for a kexec handover as well",
            "it is taken at boot like crashkernel=, and less is left for that; a capture kernel gets nothing of it",
            "remove kho=on from the command line if live update is not used",
        ));
    }
    for device in &facts.memmap_devices {
        found.push(Finding::advice(
            "memmap-on-device",
            format!("{device} holds the struct pages of its own memory"),
            "a dump lacks them: pages of that memory cannot be classified, and are not in it",
            "ndctl create-namespace --map=mem, or daxctl reconfigure-device without memmap_on_memory, if they are needed",
        ));
    }
    if reserved == 0 {
        let what = match Reservation::of(&facts.command_line, facts.memory) {
            Reservation::Absent => "no memory is reserved: the command line has no crashkernel=".to_owned(),
            Reservation::Nothing if facts.memory == 0 => {
                "no memory is reserved, though the command line has crashkernel=".to_owned()
            }
            Reservation::Nothing => {
                format!(
                    "no memory is reserved: crashkernel= gives nothing to a machine with {}",
                    mib(facts.memory)
                )
            }
            Reservation::Bytes(bytes) => {
                format!(
                    "no memory is reserved, though crashkernel= asks for {}: the kernel found no room for it",
                    mib(bytes)
                )
            }
        };
        found.push(Finding::problem("no-reservation", what, WHY, set));
        return;
    }
    let wanted = bytes(facts.default_reservation, facts.memory).unwrap_or(0);
    if reserved < wanted {
        found.push(Finding::warning(
            "small-reservation",
            format!("{} are reserved; {} recommends {} here", mib(reserved), stack.name(), mib(wanted)),
            "the capture kernel may run out of memory, which ends the dump or prevents it",
            set,
        ));
    }
    let plain = |word: &&String| {
        word.strip_prefix("crashkernel=").is_some_and(|value| !value.contains(['h', 'l', 'c']))
    };
    if facts.command_line.iter().filter(plain).count() > 1 {
        found.push(Finding::warning(
            "several-crashkernel",
            "the command line has several crashkernel= parameters",
            "only the last one counts, which may not be the one that was meant",
            format!("keep one ({})", boot_loader(stack)),
        ));
    }
}

/// Memory that the running system may use for user pages (`crashkernel=SIZE,cma`).
fn check_cma(facts: &Facts, found: &mut Examination) {
    let wants = |word: &&String| word.starts_with("crashkernel=") && word.ends_with(",cma");
    let Some(word) = facts.command_line.iter().find(wants) else { return };
    // 6.17 (35c18f2933c5 parses it, ab475510e042 reserves).
    if !facts.release.is_at_least(6, 17) || !facts.has_cma {
        found.push(Finding::warning(
            "no-cma",
            format!("{word} is ignored: Linux 6.17 and newer have it, with CONFIG_CMA"),
            "the capture kernel has less memory than planned",
            "reserve the same amount without ,cma",
        ));
    } else if facts.level.is_some_and(|level| level & 8 == 0) {
        found.push(Finding::warning(
            "cma-loses-user-memory",
            format!("{word}, and the dump level keeps user memory"),
            "user pages in that memory are not in the dump",
            "reserve without ,cma, or exclude user pages (-d 31)",
        ));
    } else {
        found.saw(format!("{word}: user pages in it are not dumped at this level anyway"));
    }
}

fn boot_loader(stack: Stack) -> &'static str {
    match stack {
        Stack::KdumpTools => "/etc/default/grub.d/kdump-tools.cfg, then update-grub",
        Stack::KdumpUtils => "kdumpctl reset-crashkernel, or grubby --update-kernel ALL --args",
        Stack::Suse => "kdumptool commandline -u, or yast kdump",
    }
}
