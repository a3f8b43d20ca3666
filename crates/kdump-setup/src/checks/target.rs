use std::path::Path;

use super::expected::Expected;
use super::mib::mib;
use crate::chain::Examination;
use crate::config::{Config, Stack, Target};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(config: &Config, facts: &Facts, expected: &Expected, found: &mut Examination) {
    match &config.target {
        Target::Directory(path) => directory(path, config, facts, expected, found),
        Target::Ssh { host, key } => super::ssh::check(host, key, config, facts, found),
        Target::Raw(device) => raw(device, config, facts, found),
        Target::Nfs(export) => nfs(export, facts, found),
        Target::Other(target) => {
            found.not_checked(format!("{target}: targets of this kind are not examined"))
        }
    }
}

fn directory(path: &Path, config: &Config, facts: &Facts, expected: &Expected, found: &mut Examination) {
    let path = path.display();
    if let Some(unmounted) = &facts.target_unmounted {
        let point = unmounted.display();
        found.push(Finding::problem(
            "target-not-mounted",
            format!("{path} is on {point}, which /etc/fstab mounts but which is not mounted"),
            "the dump goes to the wrong disk, or nowhere",
            format!("mount {point}"),
        ));
        return;
    }
    if let Some(fault) = facts.target_fault {
        let what = format!("{path} {fault}");
        let fix = format!("remove it, then mkdir -p {path}");
        found.push(Finding::problem("no-target", what, "the scripts cannot create a directory there", fix));
        return;
    }
    // The others' scripts create it.
    if !facts.target_exists && config.stack == Stack::KdumpUtils {
        let what = format!("{path} does not exist");
        let why = "mkdumprd makes no initramfs, and kdump does not start";
        found.push(Finding::problem("no-target", what, why, format!("mkdir -p {path}")));
        return;
    }
    // What the kernel itself has, uncompressed, is more than a level-31 dump takes.
    let (kernel, level) = (facts.memory_use.kernel, facts.level.unwrap_or(31));
    let is_known = facts.memory_use.is_known;
    let most = if is_known { facts.memory_use.kept(level) } else { 0 };
    match facts.target_free {
        Some(free) if is_known => {
            found.saw(format!("{path}: {} are free, the kernel has {}", mib(free), mib(kernel)));
        }
        Some(free) => found.saw(format!("{path}: {} are free", mib(free))),
        None => found.not_checked(format!("how much is free at {path}")),
    }
    if !is_known {
        let why = "/proc/meminfo does not say what memory is used for";
        found.not_checked(format!("whether a dump fits at {path}: {why}"));
    }
    if facts.target_has_no_inodes {
        found.push(Finding::problem(
            "target-full",
            format!("the file system of {path} can hold no more files: it has no free inode"),
            "the dump cannot be created",
            "remove files that are not needed from it",
        ));
        return;
    }
    match facts.target_free {
        Some(free) if free < kernel => found.push(Finding::problem(
            "target-full",
            format!("{} are free at {path}; the kernel alone has {}", mib(free), mib(kernel)),
            "the dump ends early, and is marked incomplete",
            format!("remove old dumps from {path}, or choose a larger target"),
        )),
        Some(free) if free < most => found.push(Finding::warning(
            "target-small",
            format!(
                "{} are free at {path}; what level {level} keeps takes {} before compression",
                mib(free),
                mib(most)
            ),
            "the dump may end early, and is then marked incomplete",
            format!("exclude more (-d 31), remove old dumps from {path}, or choose a larger target"),
        )),
        _ => super::suse::kept_free(config, facts, most).into_iter().for_each(|deleted| found.push(deleted)),
    }
    if let (Some(rate), Some(planned)) = (facts.target_rate, expected.disk)
        && rate < planned
    {
        found.push(Finding::warning(
            "slow-target",
            format!("{path} takes {} per second; {} are planned", mib(rate), mib(planned)),
            "the machine is down for longer than planned, if the disk is what bounds the capture",
            format!("plan again with `pagehaul kdump plan --disk {}`, or choose a faster target", mib(rate)),
        ));
    }
}

fn raw(device: &Path, config: &Config, facts: &Facts, found: &mut Examination) {
    if facts.target_exists {
        found.saw(format!("{} exists", device.display()));
        found.not_checked(format!("the size of {}", device.display()));
    }
    if !facts.target_exists {
        let device = device.display();
        found.push(Finding::problem(
            "no-target",
            format!("{device} does not exist"),
            "the dump has nowhere to go",
            format!(
                "correct the name of the disk in {}, then {}",
                config.stack.file(),
                config.stack.reload()
            ),
        ));
    }
}

fn nfs(export: &str, facts: &Facts, found: &mut Examination) {
    found.not_checked(format!("whether {export} answers and can be written to"));
    if !facts.has_mount_nfs {
        found.push(Finding::problem(
            "no-mount-nfs",
            format!("the dump goes to {export}, but mount.nfs is not installed"),
            "the capture kernel cannot mount the target, and nothing is dumped",
            "install nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL) or nfs-client (openSUSE)",
        ));
    }
}
