//! The file systems that the capture kernel mounts.

use super::mib::mib;
use crate::chain::Examination;
use crate::config::{Config, Stack, Target};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::storage::Crypt;

/// What LUKS2's Argon2id takes by default, at most (`cryptsetup`; kdump-utils asks for 1,300M in all).
const ARGON2: u64 = 1 << 30;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let storage = &facts.storage;
    if let Some((point, kind)) = &storage.mounted {
        found.saw(format!("the target is on {} ({kind})", point.display()));
        if ["tmpfs", "ramfs", "devtmpfs"].contains(&kind.as_str()) {
            found.push(Finding::problem(
                "target-in-memory",
                format!("the target is on {}, a {kind}", point.display()),
                "the dump is written to the capture kernel's memory, and is lost when it reboots",
                format!("choose a directory on a disk in {}", config.stack.file()),
            ));
        }
    } else if matches!(config.target, Target::Directory(_)) {
        found.not_checked("what the target is on: /proc/self/mountinfo cannot be read");
    }
    if let Some(file) = storage.read_only {
        found.push(Finding::problem(
            "target-read-only",
            format!("the file system of the target is mounted read-only, by {file}"),
            "the capture kernel cannot write the dump",
            "mount it read-write: remove ro from its options in /etc/fstab, and look for errors of its disk in the log",
        ));
    }
    if let Some(point) = &storage.not_at_boot {
        let point = point.display();
        found.push(Finding::problem(
            "target-not-at-boot",
            format!("the target is on {point}, which /etc/fstab mounts by hand only (noauto)"),
            "the capture kernel does not mount it: the dump goes to the file system below",
            format!("remove noauto from the options of {point} in /etc/fstab"),
        ));
    }
    if !storage.has_devices {
        found.not_checked("devices of /etc/fstab and root=: nothing is in /dev/disk");
    }
    for missing in &storage.missing {
        found.push(Finding::problem(
            "missing-device",
            format!("{} does not exist ({})", missing.device, missing.by),
            "the capture kernel waits for it, and then starts its emergency shell instead of writing a dump",
            "correct it, or add the option nofail",
        ));
    }
    if storage.has_devices && storage.missing.is_empty() {
        found.saw("all devices that are mounted at boot exist");
    }
    for crypt in &storage.crypts {
        check_crypt(crypt, config, facts, found);
    }
    if !matches!(config.target, Target::Directory(_) | Target::Raw(_)) {
        found.not_checked("whether a network is up in the capture kernel");
    }
}

fn check_crypt(crypt: &Crypt, config: &Config, facts: &Facts, found: &mut Examination) {
    let name = &crypt.name;
    let keys = facts.storage.handed_keys;
    if keys > 0 {
        // Since Linux 6.16 (Documentation/admin-guide/kdump/kdump.rst, /sys/kernel/config/crash_dm_crypt_keys).
        found.saw(format!("{keys} keys of LUKS volumes are handed to the capture kernel"));
        return;
    }
    match &crypt.unlocked_by {
        None => found.push(Finding::problem(
            "luks-passphrase",
            format!("{name}, which the capture kernel mounts, is a LUKS volume that asks for a passphrase"),
            "the capture kernel waits for it at the console, and no dump is written until it is entered",
            "dump to a disk without encryption or to another host; with kdump-utils on Linux 6.16 and newer: kdumpctl \
             setup-crypttab hands over the key",
        )),
        Some(by) if by.starts_with("tpm2-device=") => found.push(Finding::warning(
            "tpm2-unlock",
            format!("{name}, which the capture kernel mounts, is unlocked by the TPM"),
            "the TPM gives the key only if its measurements are those of the first boot, and the initramfs has its driver",
            "prove it by a crash: pagehaul kdump test",
        )),
        Some(by) => found.saw(format!("{name} is a LUKS volume, unlocked by {by}")),
    }
    let reserved = facts.reserved.unwrap_or(0);
    if crypt.is_luks2 && reserved > 0 && reserved < ARGON2 && config.stack != Stack::Suse {
        found.push(Finding::warning(
            "luks2-memory",
            format!(
                "{name} is LUKS2, whose Argon2id takes up to 1024M to unlock; {} are reserved",
                mib(reserved)
            ),
            "the capture kernel runs out of memory before it can mount the disk",
            "reserve 1300M, or use a key slot with PBKDF2 (cryptsetup luksConvertKey --pbkdf pbkdf2)",
        ));
    }
}
