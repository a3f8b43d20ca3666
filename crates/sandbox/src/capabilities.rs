//! Capabilities of root and of privileged users.

use std::fs::{Metadata, metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::Gap;
use crate::files::parent;

/// Returns the capabilities without which the files named cannot be used. None for a dump and an output of the same user.
pub(crate) fn needed<'a>(inputs: &[PathBuf], outputs: impl Iterator<Item = &'a PathBuf>) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    // Each reader of /proc/kcore opens it again, which asks for them. It is the memory of this machine's own kernel.
    if inputs.iter().any(|path| is_in_proc(path)) {
        needed |= CapabilitySet::SYS_RAWIO | CapabilitySet::DAC_READ_SEARCH;
    }
    // Root writes into a directory of another user, or replaces another user's file there.
    let user = geteuid().as_raw();
    let others = |found: std::io::Result<Metadata>| found.is_ok_and(|found| found.uid() != user);
    for output in outputs {
        if others(metadata(parent(output))) || others(symlink_metadata(output)) {
            needed |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        }
    }
    needed
}

fn is_in_proc(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Drops the other capabilities of this thread, and all that programs could be started with.
pub(crate) fn drop_all_but(kept: CapabilitySet) -> Option<Gap> {
    // Needs CAP_SETPCAP. Without it, no capability can be gained either: `no_new_privs` is set.
    for bit in 0..u64::BITS {
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)).is_err() {
            break;
        }
    }
    // Linux 4.3 (58319057b784); it also ends with the inheritable set.
    let _ = clear_ambient_capability_set();
    let dropped = capabilities(None).and_then(|now| {
        let kept = now.permitted & kept;
        set_capabilities(
            None,
            CapabilitySets {
                effective: now.effective & kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            },
        )
    });
    dropped.err().map(Gap::Capabilities)
}
