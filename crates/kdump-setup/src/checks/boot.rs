//! The command line of this boot and of the next.

use crate::chain::Examination;
use crate::config::Stack;
use crate::crashkernel::Reservation;
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(facts: &Facts, found: &mut Examination) {
    let is_ours = |word: &&String| word.starts_with("crashkernel=");
    let now: Vec<String> = facts.command_line.iter().filter(is_ours).cloned().collect();
    found.saw(format!("this boot: {} (/proc/cmdline)", shown(&now)));
    let Some(next) = &facts.next_boot else {
        found.not_checked("the next boot: no configuration of GRUB or of systemd-boot can be read in /boot");
        return;
    };
    let file = next.file.display();
    let pending = pending(facts, found);
    let Some(words) = next.crashkernel() else {
        pending.into_iter().for_each(|pending| found.push(pending));
        found.not_checked(format!("the next boot: {file} has entries with and without crashkernel=, and which is the default is not known"));
        return;
    };
    found.saw(format!("next boot: {} ({file})", shown(words)));
    let update = match facts.stack() {
        Some(Stack::KdumpUtils) => "kdumpctl reset-crashkernel --kernel=ALL",
        Some(Stack::Suse) => "kdumptool commandline -u, or grub2-mkconfig -o /boot/grub2/grub.cfg",
        _ => "install kdump-tools' /etc/default/grub.d/kdump-tools.cfg, then update-grub",
    };
    // What reserves today does so again, `crashkernel=auto` of RHEL 8 included.
    let is_same = words == now.as_slice() && facts.reserved.unwrap_or(0) > 0;
    let reserves = || match Reservation::of(words, facts.memory) {
        Reservation::Bytes(_) => true,
        Reservation::Nothing => facts.memory == 0,
        Reservation::Absent => false,
    };
    if !is_same && !reserves() {
        found.push(Finding::problem(
            "next-boot-no-reservation",
            format!("{file} starts a kernel with {}: nothing is reserved after the next boot", shown(words)),
            "the set-up is lost with the next reboot, and nothing says so",
            update,
        ));
    } else if let Some(pending) = pending {
        found.push(pending);
    } else if words != now.as_slice() {
        found.push(Finding::warning(
            "reboot-pending",
            format!("this kernel runs with {}, the next boot has {}", shown(&now), shown(words)),
            "what was configured takes effect at the next boot",
            "reboot",
        ));
    }
}

/// Whether GRUB's settings were changed, and its file was not made from them since.
fn pending(facts: &Facts, found: &mut Examination) -> Option<Finding> {
    let (grub, next) = (facts.grub.as_ref()?, facts.next_boot.as_ref()?);
    let wanted = match &grub.wanted {
        Ok(wanted) => shown(wanted),
        Err(reason) => {
            found.not_checked(format!("the crashkernel= of GRUB's settings: {reason}"));
            return None;
        }
    };
    found.saw(format!("GRUB's settings: {wanted} (/etc/default/grub)"));
    let (file, generated) = (next.file.display(), shown(&grub.generated));
    let update = match facts.stack() {
        Some(Stack::Suse) => "grub2-mkconfig -o /boot/grub2/grub.cfg",
        _ => "update-grub",
    };
    grub.is_pending().then(|| {
        Finding::warning(
            "boot-loader-pending",
            format!("GRUB's settings (/etc/default/grub, grub.d) have {wanted}, and {file} has {generated}"),
            "the next boot is without the change, and the update of a kernel brings it, whenever that is",
            format!("{update}, and reboot; or correct the settings"),
        )
    })
}

fn shown(words: &[String]) -> String {
    if words.is_empty() { "no crashkernel=".into() } else { words.join(" ") }
}
