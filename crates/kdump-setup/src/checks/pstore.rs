use crate::chain::Examination;
use crate::facts::Facts;
use crate::finding::Finding;

/// What is left of a crash whose dump fails.
pub(super) fn check(facts: &Facts, found: &mut Examination) {
    let pstore = &facts.pstore;
    match &pstore.backend {
        None if !pstore.is_known => {
            found.not_checked("whether pstore keeps the log: /sys/module does not exist");
        }
        None if pstore.is_efi_disabled => found.push(Finding::advice(
            "no-pstore",
            "pstore has no backend: efi_pstore is disabled by its parameter pstore_disable",
            "if the dump of a crash fails, nothing is left of the kernel's log but what a console showed",
            "efi_pstore.pstore_disable=0 on the kernel's command line",
        )),
        None => found.push(Finding::advice(
            "no-pstore",
            "pstore has no backend",
            "if the dump of a crash fails, nothing is left of the kernel's log but what a console showed",
            "load efi_pstore (UEFI), or ramoops with memory that outlives a reboot",
        )),
        // panic() and oops_end() start a capture kernel first (f06e5153f4ae, Linux 3.16, added the parameter).
        Some(backend) if facts.loaded && !pstore.is_before_kdump => found.push(Finding::advice(
            "no-pstore-before-kdump",
            format!("pstore ({backend}) gets no log while a capture kernel is loaded: the kernel starts that first"),
            "if the capture kernel hangs, nothing is left of the kernel's log but what a console showed",
            "crash_kexec_post_notifiers on the kernel's command line, if records matter more than the risk: all panic \
             notifiers then run in the crashed kernel",
        )),
        Some(backend) => {
            found.saw(format!("the end of the log is kept in pstore ({backend}) if a dump fails"));
        }
    }
}
