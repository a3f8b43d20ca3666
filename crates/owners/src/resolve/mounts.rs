//! Where file systems are mounted.

use std::collections::HashMap;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::path;

/// Mounts on the way to the root.
const DEEPEST: usize = 16;

/// Directories at which super blocks are mounted, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    known: HashMap<u64, Option<String>>,
}

impl Mounts {
    /// Returns the directory of the first mount of a super block; `None` if it has none, as the kernel's internal ones.
    pub(crate) fn of(&mut self, super_block: &Object<'_>) -> Option<&str> {
        let found =
            self.known.entry(super_block.address()).or_insert_with(|| first(super_block).ok().flatten());
        found.as_deref()
    }
}

fn first(super_block: &Object<'_>) -> Result<Option<String>, Fault> {
    let mounts = super_block.get("s_mounts")?;
    // 09a1b33c080f (6.18): a pointer to the first, not a list head.
    let mount = match mounts.cast("list_head") {
        Ok(head) if mounts.has("next") => {
            let next = head.number("next")?;
            if next == head.address() {
                return Ok(None);
            }
            let space = super_block.space();
            space.object(next.wrapping_sub(space.offset_of("mount", "mnt_instance")?), "mount")?
        }
        _ => match mounts.target() {
            Err(Fault::Null(_)) => return Ok(None),
            mount => mount?,
        },
    };
    directory(mount)
}

/// The path of a mount from the root of its namespace. The kernel's own mounts are mounted nowhere.
fn directory(mut mount: Object<'_>) -> Result<Option<String>, Fault> {
    let mut parts: Vec<String> = Vec::new();
    for _ in 0..DEEPEST {
        let parent = mount.get("mnt_parent")?.target()?;
        if parent.address() == mount.address() {
            break;
        }
        parts.push(path(&mount.get("mnt_mountpoint")?.target()?)?);
        mount = parent;
    }
    // No namespace, or an error pointer (`MNT_NS_INTERNAL`).
    let namespace = mount.number("mnt_ns").unwrap_or(0);
    if parts.is_empty() && (namespace == 0 || namespace > u64::MAX - 4096) {
        return Ok(None);
    }
    parts.reverse();
    let joined: String = parts.iter().map(|part| part.trim_end_matches('/')).collect();
    Ok(Some(joined))
}
