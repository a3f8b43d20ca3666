//! What decides which kernels may be loaded: Secure Boot, and lockdown (`security/lockdown`, Linux 5.4), which most distributions
//! switch on with it.

use crate::chain::Examination;
use crate::facts::{Facts, Firmware, Lockdown};

pub(super) fn check(facts: &Facts, found: &mut Examination) {
    let Firmware { is_efi, secure_boot } = facts.firmware;
    found.saw(match (is_efi, secure_boot) {
        (false, _) => "no UEFI, so no Secure Boot (/sys/firmware/efi)",
        (true, Some(true)) => "UEFI with Secure Boot: only signed kernels are loaded, by kexec -s",
        (true, Some(false)) => "UEFI, Secure Boot off",
        (true, None) => "UEFI",
    });
    if is_efi && secure_boot.is_none() {
        found.not_checked("Secure Boot: its variable below /sys/firmware/efi/efivars cannot be read");
    }
    found.saw(match facts.lockdown {
        Lockdown::None => "no lockdown (/sys/kernel/security/lockdown)",
        Lockdown::Integrity => "lockdown: integrity",
        Lockdown::Confidentiality => "lockdown: confidentiality",
    });
}
