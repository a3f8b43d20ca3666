//! What only openSUSE's scripts do with their settings (kdump 2.1.9).

use super::mib::mib;
use crate::chain::Examination;
use crate::config::{Config, Stack, SuseSettings, Target};
use crate::facts::{Facts, Image};
use crate::finding::Finding;
use crate::link::Link;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let Some(suse) = &config.suse else { return };
    let file = config.stack.file();
    settings(suse, file, found.link(Link::CommandLine));
    firmware_dump(suse, file, found.link(Link::CommandLine));
    kernel(suse, facts, file, found.link(Link::Kernel));
    if let Some(command) = &suse.transfer {
        let what = format!(
            "{} in {file}, `{command}`, is in place of all that kdump-save does",
            Stack::SUSE_TRANSFER
        );
        found.link(Link::Target).not_checked(what.clone());
        found.link(Link::Program).not_checked(what);
        return;
    }
    if let Some(directory) = &suse.wrong_directory {
        found.link(Link::Target).push(Finding::problem(
            "no-target",
            format!(
                "KDUMP_SAVEDIR in {file} is {directory}: neither an absolute path nor a URL that kdump knows"
            ),
            // KDUMP_PROTO of kdump-read-config.sh is empty, for which `main` of kdump-save ends (`fatal_error`).
            "kdump-save ends with an error, and no dump is written",
            format!("set KDUMP_SAVEDIR=\"/var/crash\" in {file}, then {}", config.stack.reload()),
        ));
    }
    if matches!(config.target, Target::Ssh { .. }) && facts.host_is_known && suse.has_host_key {
        found.link(Link::Target).saw(format!("KDUMP_HOST_KEY is set in {file}"));
    }
    let level = found.link(Link::Program);
    if let Some(wrong) = &suse.wrong_level {
        let what = format!("{} in {file} is {wrong}, and not one of 0 to 31", Stack::SUSE_LEVEL);
        let fix = format!("set {}=31 in {file}", Stack::SUSE_LEVEL);
        let why = "kdump-save takes it for 0: the dump has all memory, takes longer, and may not fit";
        level.push(error(suse, "no-level", what, why, fix));
    }
}

/// Whether a command is in place of all that kdump-save does.
pub(super) fn transfers(config: &Config) -> bool {
    config.suse.as_ref().is_some_and(|suse| suse.transfer.is_some())
}

fn settings(suse: &SuseSettings, file: &str, found: &mut Examination) {
    for ignored in &suse.ignored {
        let (setting, default) = (ignored.setting, ignored.default);
        found.push(Finding::warning(
            "broken-configuration",
            format!(
                "{setting} in {file} is {}, and not {}: {default} is taken",
                ignored.value, ignored.wanted
            ),
            // `option` of kdump-read-config.sh.
            "kdump's scripts ignore the value and take the default, and kdump does not do what the file says",
            format!("correct {setting} in {file}"),
        ));
    }
    if !suse.computed.is_empty() {
        found.not_checked(format!("what a shell computes in {file}: {}", suse.computed.join(", ")));
    }
    if let Some(format) = &suse.wrong_format {
        let setting = Stack::SUSE_FORMAT;
        found.push(error(
            suse,
            "broken-configuration",
            format!("{setting} in {file} is {format}, which kdump-save does not know (it is case-sensitive)"),
            "kdump-save has makedumpfile compress the dump with zstd instead, whatever was meant",
            format!("set {setting}=\"compressed\" in {file}"),
        ));
    }
}

/// What kdump-save calls an error (`error`): it goes on, or starts a shell in the capture kernel.
fn error(suse: &SuseSettings, id: &'static str, what: String, why: &'static str, fix: String) -> Finding {
    if suse.continues {
        return Finding::warning(id, what, why, fix);
    }
    let why =
        "kdump-save starts a shell (KDUMP_CONTINUE_ON_ERROR=false), and writes no dump until someone ends it";
    Finding::problem(id, what, why, fix)
}

/// `load_kdump_fadump` of load.sh fails without it, and mkdumprd removes what kexec would load.
fn firmware_dump(suse: &SuseSettings, file: &str, found: &mut Examination) {
    match suse.firmware_dump {
        None => {}
        Some(Some(false)) => found.push(Finding::problem(
            "disabled",
            format!("{file} has KDUMP_FADUMP=true, which this kernel does not do (/sys/kernel/fadump/enabled)"),
            "load.sh ends with an error, and loads no capture kernel; mkdumprd removes the initramfs of the loaded one",
            format!("set KDUMP_FADUMP=false in {file}, then {}", Stack::Suse.reload()),
        )),
        Some(Some(true)) => found.not_checked("a dump by the firmware (KDUMP_FADUMP)"),
        Some(None) => found.not_checked("whether the kernel has KDUMP_FADUMP: nothing is in /sys/kernel"),
    }
}

/// mkdumprd ends without the configured kernel, and with it `load.sh --update` of kdump.service.
fn kernel(suse: &SuseSettings, facts: &Facts, file: &str, found: &mut Examination) {
    let is_there = |image: &Option<Image>| image.as_ref().is_some_and(|image| image.modified.is_some());
    // That it is not there has a finding already.
    let Some(version) = suse.missing_kernel.as_ref().filter(|_| is_there(&facts.kernel)) else { return };
    let what = format!("KDUMP_KERNELVER in {file} is {version}, and that kernel does not exist");
    let fix = format!("correct KDUMP_KERNELVER in {file}, then {}", Stack::Suse.reload());
    found.push(if suse.loads_early && is_there(&facts.initramfs) {
        let why =
            "mkdumprd and kdump.service fail: kdump-early.service loads an earlier kernel and configuration";
        Finding::warning("no-kernel", what, why, fix)
    } else {
        let why = "mkdumprd and kdump.service fail, and no capture kernel is loaded at the next boot";
        Finding::problem("no-kernel", what, why, fix)
    });
}

/// kdump-save deletes the dump (`main`) where `df` says that less than `KDUMP_FREE_DISK_SIZE` is available then. `most` is what the
/// dump takes before compression; 0 if that is not known.
pub(super) fn kept_free(config: &Config, facts: &Facts, most: u64) -> Option<Finding> {
    let suse = config.suse.as_ref()?;
    let (kept, available) = (suse.kept_free, facts.target_available?);
    let file = config.stack.file();
    // Rounded up, as df does.
    let has = |bytes: u64| bytes.div_ceil(1 << 20) >= kept >> 20;
    if kept == 0 || has(available.saturating_sub(most)) {
        return None;
    }
    let fix =
        format!("set KDUMP_FREE_DISK_SIZE lower in {file}, remove old dumps, or choose a larger target");
    let what = |more: &str| {
        let (kept, available) = (mib(kept), mib(available));
        format!("KDUMP_FREE_DISK_SIZE in {file} keeps {kept} free; {available} are available to users{more}")
    };
    if !has(available) && !suse.deletes_older {
        let why = "kdump-save writes the dump, and deletes it then";
        return Some(Finding::problem("target-full", what(""), why, fix));
    }
    let more = match has(available) {
        true => format!(", and the dump takes up to {} of it before compression", mib(most)),
        false => ", before older dumps are deleted".to_owned(),
    };
    let why = "kdump-save deletes the dump if less than that is left";
    Some(Finding::warning("target-small", what(&more), why, fix))
}
