//! Whether dumps are encrypted where a file of recipients says so.

use crate::chain::Examination;
use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let Some(recipients) = &facts.recipients else { return };
    let file = Facts::RECIPIENTS;
    match recipients {
        Err(reason) => found.push(Finding::problem(
            "unusable-recipients",
            format!("{file}: {reason}"),
            "no dump and no log is written: pagehaul writes none in the clear where this file exists",
            format!("correct {file}, or remove it"),
        )),
        Ok(keys) => found.saw(format!("{file} has {keys} keys: dumps are encrypted to them")),
    }
    if recipients.is_ok() && !facts.collector.as_ref().is_some_and(|collector| collector.is_pagehaul) {
        found.push(Finding::problem(
            "not-encrypted",
            format!("{file} exists, and pagehaul does not write the dump"),
            "the dump is written in the clear",
            "install pagehaul-kdump",
        ));
        return;
    }
    if recipients.is_err() || config.stack == Stack::KdumpTools {
        return;
    }
    // Debian's scripts run in the real root file system.
    let name = file.trim_start_matches('/');
    match facts.contents.as_ref().map(|contents| contents.any(|file| file == name)) {
        Some(Some(true)) => found.saw(format!("{file} is in the initramfs")),
        Some(Some(false)) => found.push(Finding::problem(
            "recipients-not-in-initramfs",
            format!("{file} is not in the initramfs of the capture kernel"),
            "the dump is written in the clear",
            config.stack.reload(),
        )),
        _ => found.not_checked(format!("whether {file} is in the initramfs: its files are not known")),
    }
    if config.stack == Stack::KdumpUtils {
        found.push(Finding::warning(
            "log-not-encrypted",
            "kdump-utils saves the log of the kernel by vmcore-dmesg, a program of its own, next to the dump",
            "vmcore-dmesg.txt is readable by whoever can read the dump's directory",
            "let a kdump_post script remove it: `pagehaul dmesg` shows the log of the dump",
        ));
    }
}
