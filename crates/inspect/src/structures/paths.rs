//! Paths of open files and mappings.

use pagehaul_btf::{Fault, Object};

use crate::machine::Machine;

/// Names in a path.
const DEEPEST: usize = 64;

/// The path of a `struct file` within its file system, or the file system's name for sockets and pipes.
pub(crate) fn file_name(machine: &Machine<'_>, file: u64) -> Result<String, Fault> {
    let file = machine.space().object(file, "file")?;
    let dentry = file.any(&["f_path.dentry", "__f_path.dentry"])?.target()?;
    let kind = dentry.get("d_sb->s_type->name")?.text()?;
    let path = path(&dentry)?;
    Ok(if path.len() > 1 { format!("{path} ({kind})") } else { kind })
}

/// The path of a name within its file system.
pub fn path(dentry: &Object<'_>) -> Result<String, Fault> {
    path_below(dentry, 0)
}

/// The path of a name within the directory whose `struct dentry` is at `root`, or within its file system.
pub(crate) fn path_below(dentry: &Object<'_>, root: u64) -> Result<String, Fault> {
    let mut parts = Vec::new();
    let mut at = *dentry;
    for _ in 0..DEEPEST {
        let parent = at.get("d_parent")?.target()?;
        if parent.address() == at.address() || at.address() == root {
            break;
        }
        // 2d9e4d2a1d32 (6.14) wrapped d_name.
        parts.push(at.any(&["d_name.name", "__d_name.name"])?.text()?);
        at = parent;
    }
    parts.reverse();
    Ok(format!("/{}", parts.join("/")))
}
