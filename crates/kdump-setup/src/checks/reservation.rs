use super::mib;
use crate::config::Stack;
use crate::crashkernel::{Reservation, default_reservation, recommended};
use crate::facts::Facts;
use crate::finding::Finding;

const WHY: &str =
    "a capture kernel needs memory that was set aside at boot; without it a crash leaves no dump";

pub(super) fn check(facts: &Facts, found: &mut Vec<Finding>) {
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
    if reserved == 0 {
        let what = match Reservation::of(&facts.command_line, facts.memory) {
            Reservation::Absent => "no memory is reserved: the command line has no crashkernel=".to_owned(),
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
    let wanted = recommended(stack, facts.memory).unwrap_or(0);
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

fn boot_loader(stack: Stack) -> &'static str {
    match stack {
        Stack::KdumpTools => "/etc/default/grub.d/kdump-tools.cfg, then update-grub",
        Stack::KdumpUtils => "kdumpctl reset-crashkernel, or grubby --update-kernel ALL --args",
        Stack::Suse => "kdumptool commandline -u, or yast kdump",
    }
}
