use crate::chain::Examination;
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(facts: &Facts, found: &mut Examination) {
    match facts.panic_on_oops {
        Some(0) => {}
        Some(_) => found.saw("an oops panics (kernel.panic_on_oops)"),
        None => found.not_checked("kernel.panic_on_oops cannot be read"),
    }
    if let (Some(file), Some(1)) = (&facts.panic_on_oops_file, facts.panic_on_oops) {
        found.push(Finding::warning(
            "no-panic-on-oops-at-boot",
            format!("{} sets kernel.panic_on_oops to 0", file.display()),
            "after the next boot an oops may not panic; kdump-tools sets it as well, and which is last depends on time",
            format!("remove the line from {}", file.display()),
        ));
    }
    if facts.panic_on_oops == Some(0) {
        found.push(Finding::warning(
            "no-panic-on-oops",
            "kernel.panic_on_oops is 0",
            "after an oops the machine continues with broken state, without a dump",
            "sysctl -w kernel.panic_on_oops=1, and a line in /etc/sysctl.d",
        ));
    }
    if facts.panic_on_hang == [Some(0), Some(0)] {
        // The kernel's default, and every distribution's.
        found.push(Finding::advice(
            "no-panic-on-hang",
            "kernel.hung_task_panic and kernel.softlockup_panic are 0",
            "a machine that hangs is dumped only if an operator panics it (SysRq c, NMI)",
            "sysctl -w kernel.softlockup_panic=1 kernel.hung_task_panic=1, if a hang should be dumped",
        ));
    }
}
