//! Which files can be opened: Landlock (Linux 5.13, 265885daf3e5).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    PathFdError, RestrictSelfAttr, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use pagehaul_output::names_open_file;

use crate::{EnterError, Gap, Sandbox};

/// The newest rights and scopes that this module knows: sockets with names (`ABI::V9`, Linux 7.1), UDP (`ABI::V10`, Linux 7.2),
/// signals and abstract sockets (`ABI::V6`, Linux 6.12). Older kernels enforce those that they know; seccomp refuses sockets and
/// signals on all.
pub(crate) const NEWEST: ABI = ABI::V10;

/// Read at any time: memory and threads that are available, CPUs and limits of the control group (by the standard library), state
/// of the heap (by the C library), the time zone.
const SYSTEM: [&str; 10] = [
    "/proc/meminfo",
    "/proc/self/status",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/self/fd",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];

/// Access to a file or to all below a directory.
pub(crate) type Rule = (PathFd, BitFlags<AccessFs>);

/// Restricts which files can be opened. Outputs need `writes`.
pub(crate) fn restrict(sandbox: &Sandbox, writes: bool) -> Result<Option<Gap>, EnterError> {
    Ok(match try_restrict(rules(sandbox)?) {
        Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) | Err(_) => Some(Gap::Files),
        // Without outputs, seccomp refuses O_TRUNC.
        Ok(status) => (writes && is_before(&status, ABI::V3)).then_some(Gap::Truncation),
    })
}

fn is_before(status: &RestrictionStatus, abi: ABI) -> bool {
    matches!(status.landlock, LandlockStatus::Available { effective_abi, .. } if effective_abi < abi)
}

fn rules(sandbox: &Sandbox) -> Result<Vec<Rule>, EnterError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let create = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Refer;
    let mut rules = Vec::new();
    for path in SYSTEM.iter().map(Path::new).chain(sandbox.inputs.iter().map(PathBuf::as_path)) {
        rules.extend(rule(path, read)?);
    }
    for path in &sandbox.outputs {
        // A device, a FIFO or an open file is written itself; a file may be made anew under another name and renamed.
        let special = path.metadata().is_ok_and(|metadata| !metadata.is_file()) || names_open_file(path);
        rules.extend(match special {
            true => rule(path, read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?,
            false => rule(parent(path), create)?,
        });
    }
    for path in &sandbox.trees {
        rules.extend(rule(path, create | AccessFs::MakeDir)?);
    }
    Ok(rules)
}

fn try_restrict(rules: Vec<Rule>) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    add(&mut ruleset, rules);
    ruleset.all_threads(true)?.restrict_self()
}

/// Makes a rule. A path that cannot be opened needs none: the command reports it. Pipes take none, and stay open to all.
pub(crate) fn rule(path: &Path, rights: BitFlags<AccessFs>) -> Result<Option<Rule>, EnterError> {
    match PathFd::new(path) {
        Ok(file) => Ok(Some((file, rights))),
        Err(PathFdError::OpenCall { source, path, .. })
            if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
        {
            Err(EnterError::Files { path, source })
        }
        Err(_) => Ok(None),
    }
}

/// Adds rules.
pub(crate) fn add(ruleset: &mut RulesetCreated, rules: Vec<Rule>) {
    for (file, rights) in rules {
        let _ = ruleset.add_rule(PathBeneath::new(&file, rights));
        // A rule is about an inode. That of a file of /proc/self is made anew once nothing has it open.
        std::mem::forget(file);
    }
}

/// The directory of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
