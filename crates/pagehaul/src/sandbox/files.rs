//! Which files can be opened: Landlock (Linux 5.13, 265885daf3e5).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError,
};

use pagehaul_output::names_open_file;

use super::parent;

/// Rights to files up to truncation (Linux 6.2). Older kernels enforce those they know.
const RIGHTS: ABI = ABI::V3;

/// Read by libraries at any time: the number of CPUs, the memory, the time zone.
const SYSTEM: [&str; 4] = ["/proc", "/sys", "/etc/localtime", "/usr/share/zoneinfo"];

/// A kernel that refuses leaves the command as it was: the sandbox protects, the command does not need it.
pub(super) fn restrict(inputs: &[PathBuf], outputs: &[PathBuf]) {
    let _ = try_restrict(inputs, outputs);
}

fn try_restrict(inputs: &[PathBuf], outputs: &[PathBuf]) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let all = AccessFs::from_all(RIGHTS) & !AccessFs::Execute;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?;
    for path in SYSTEM.iter().map(Path::new).chain(inputs.iter().map(PathBuf::as_path)) {
        allow(&mut ruleset, path, read);
    }
    for path in outputs.iter().filter(|path| path.as_os_str() != "-") {
        // A device, a FIFO or an open file is written itself; a file may be made anew under another name and renamed.
        let special = path.metadata().is_ok_and(|metadata| !metadata.is_file()) || names_open_file(path);
        allow(&mut ruleset, if special { path } else { parent(path) }, all);
    }
    ruleset.restrict_self().map(drop)
}

/// Adds a rule. A path that cannot be opened needs none: the command reports it. Pipes take none, and stay open to all.
fn allow(ruleset: &mut RulesetCreated, path: &Path, rights: BitFlags<AccessFs>) {
    if let Ok(file) = PathFd::new(path) {
        let _ = ruleset.add_rule(PathBeneath::new(file, rights));
    }
}
