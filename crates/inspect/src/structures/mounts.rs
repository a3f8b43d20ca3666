//! Mounted file systems, by mount namespace.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object, Walk};
use serde::Serialize;

use super::namespaces::{Namespace, namespaces};
use super::paths::path_below;
use super::tasks::Tasks;
use crate::hex::Hex;
use crate::machine::Machine;

/// Mounts that are read.
const MAX_MOUNTS: usize = 1 << 18;
/// Mounts above a mount.
const DEEPEST: usize = 64;
/// `SB_RDONLY` (include/linux/fs.h), and `MNT_READONLY` (include/linux/mount.h).
const FILE_SYSTEM_READ_ONLY: u64 = 1;
const MOUNT_READ_ONLY: u64 = 0x40;

/// A mount.
#[derive(Debug, Clone, Serialize)]
pub struct Mount {
    /// Inode number of its mount namespace.
    pub namespace: u64,
    /// Where it is mounted, seen from the root of its namespace.
    pub point: String,
    /// What is mounted: a device or a name.
    pub device: String,
    /// Type of the file system.
    pub kind: String,
    /// Whether nothing can be written through it.
    pub read_only: bool,
    /// Whether the file system is frozen (`fsfreeze`), so that who writes waits.
    pub frozen: bool,
    /// Address of its `struct mount`.
    pub address: Hex,
    /// Address of its `struct super_block`.
    pub super_block: Hex,
}

/// A mount namespace.
#[derive(Debug, Clone, Serialize)]
pub struct MountNamespace {
    /// Inode number.
    pub number: u64,
    /// The first task in it.
    pub task: String,
    /// Tasks in it.
    pub tasks: u64,
}

/// All mounts of namespaces that tasks are in.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Mounts {
    /// That of the oldest task first.
    pub namespaces: Vec<MountNamespace>,
    /// By namespace.
    pub all: Vec<Mount>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the mounts of all namespaces that tasks are in.
pub fn mounts(machine: &Machine<'_>, tasks: &Tasks) -> Mounts {
    let mut found = Mounts::default();
    if let Err(why) = read(machine, tasks, &mut found) {
        found.broken.push(format!("mounts: {why}"));
    }
    found.broken.truncate(16);
    found
}

fn read(machine: &Machine<'_>, tasks: &Tasks, found: &mut Mounts) -> Result<(), Fault> {
    for Namespace { object: namespace, number, first, tasks } in
        namespaces(machine, tasks, "mnt_ns", &mut found.broken)
    {
        found.namespaces.push(MountNamespace { number, task: first.label(), tasks });
        let walk = match mounts_of(&namespace) {
            Ok(walk) => walk,
            Err(why) => {
                found.broken.push(format!("the mounts of namespace {number}: {why}"));
                continue;
            }
        };
        found.broken.extend(walk.broken);
        for mount in walk.items {
            if found.all.len() >= MAX_MOUNTS {
                found.broken.push(format!("there are more than {MAX_MOUNTS} mounts"));
                return Ok(());
            }
            match describe(&mount, number) {
                Ok(mount) => found.all.extend(mount),
                Err(why) => found.broken.push(format!("the mount at {:#x}: {why}", mount.address())),
            }
        }
    }
    Ok(())
}

fn mounts_of<'a>(namespace: &Object<'a>) -> Result<Walk<Object<'a>>, Fault> {
    // 2eea9ce4310d (6.8) replaced the list by a tree.
    match namespace.get("mounts") {
        Ok(tree) if tree.has("rb_node") => tree.tree("mount", "mnt_node"),
        _ => namespace.get("list")?.list("mount", "mnt_list"),
    }
}

/// None of a cursor of a process that reads /proc/PID/mounts, which is in the list of 5.8 to 6.7.
fn describe(mount: &Object<'_>, namespace: u64) -> Result<Option<Mount>, Fault> {
    if mount.get("mnt.mnt_sb")?.pointer()? == 0 {
        return Ok(None);
    }
    let file_system = mount.get("mnt.mnt_sb")?.target()?;
    let read_only = mount.number("mnt.mnt_flags")? & MOUNT_READ_ONLY != 0
        || file_system.number("s_flags")? & FILE_SYSTEM_READ_ONLY != 0;
    Ok(Some(Mount {
        namespace,
        point: point(mount)?,
        device: mount.get("mnt_devname")?.text().unwrap_or_else(|_| "none".to_owned()),
        kind: file_system.get("s_type->name")?.text()?,
        read_only,
        frozen: file_system.number("s_writers.frozen")? != 0,
        address: Hex(mount.address()),
        super_block: Hex(file_system.address()),
    }))
}

/// The path of a mount from the root of its namespace: the paths within each mount above it, joined.
fn point(mount: &Object<'_>) -> Result<String, Fault> {
    let mut parts = Vec::new();
    let mut at = *mount;
    let mut seen = HashSet::new();
    while seen.insert(at.address()) && seen.len() <= DEEPEST {
        let above = at.get("mnt_parent")?.target()?;
        if above.address() == at.address() {
            break;
        }
        let root = above.get("mnt.mnt_root")?.pointer()?;
        let inside = path_below(&at.get("mnt_mountpoint")?.target()?, root)?;
        if inside != "/" {
            parts.push(inside);
        }
        at = above;
    }
    parts.reverse();
    Ok(if parts.is_empty() { "/".to_owned() } else { parts.concat() })
}
