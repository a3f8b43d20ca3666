//! From address spaces to files.

use std::collections::{HashMap, HashSet};

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, path};
use pagehaul_machine::PageCount;

use super::mounts::Mounts;
use super::processes::Processes;
use crate::report::{FileDetail, Owner};
use crate::tally::FilePages;
use crate::walks::holders::Held;

/// Mappings of one file that are read to find who holds it.
const MAX_MAPPINGS: usize = 64;

/// A file with cached pages.
#[derive(Debug)]
pub(crate) struct CachedFile {
    pub(crate) owner: Owner,
    /// Shared memory: tmpfs and what is built on it.
    pub(crate) shmem: bool,
    /// `address_space.nrpages`: its pages by its own count.
    pub(crate) counted: u64,
    /// It has no name in any directory.
    unlinked: bool,
    inode: u64,
    mapping: u64,
}

/// Reads the file of an address space. Fails if there is none at this address: the pointer was of something else.
pub(crate) fn cached_file(
    machine: &Machine<'_>,
    mounts: &mut Mounts,
    address: u64,
    pages: FilePages,
) -> Result<Option<CachedFile>, Fault> {
    let space = machine.space();
    let mapping = space.object(address, "address_space")?;
    let inode = match mapping.get("host")?.target() {
        Ok(inode) => inode,
        Err(Fault::Null(_)) => return Ok(None),
        Err(why) => return Err(why),
    };
    let of_inode = inode.number("i_mapping")? == address || inode.get("i_data")?.address() == address;
    if !of_inode {
        return Ok(None);
    }
    let super_block = inode.get("i_sb")?.target()?;
    let filesystem = super_block.get("s_type->name")?.text()?;
    let operations = mapping.number("a_ops")?;
    let shmem = machine.symbols().address("shmem_aops") == Some(operations) || filesystem == "tmpfs";
    let number = inode.number("i_ino")?;
    let named = alias(&inode)?;
    let unlinked = inode.number("i_nlink").unwrap_or(1) == 0 && filesystem != "bdev";
    let name = match &named {
        _ if filesystem == "bdev" => {
            block_device(&inode).unwrap_or_else(|_| format!("block device, inode {number}"))
        }
        Some(dentry) => file_name(dentry, &super_block, mounts, shmem)?,
        None => format!("inode {number}"),
    };
    let mut detail = FileDetail {
        mount: mounts.of(&super_block).map(|directory| match directory {
            "" => "/".into(),
            directory => directory.to_owned(),
        }),
        device: super_block.get("s_id")?.text().unwrap_or_default(),
        inode: number,
        size: inode.number("i_size")?,
        // Segments and the like never had a name in a directory.
        deleted: unlinked && !matches!(&named, Some(dentry) if is_object(dentry, &super_block, shmem)?),
        ..FileDetail::default()
    };
    // Every page of shared memory is dirty, and is written to swap at most.
    if !shmem && !matches!(filesystem.as_str(), "ramfs" | "rootfs" | "hugetlbfs") {
        (detail.dirty, detail.writeback) = (PageCount::new(pages.dirty), PageCount::new(pages.writeback));
    }
    if shmem && let Ok(info) = inode.container("shmem_inode_info", "vfs_inode") {
        detail.swapped = PageCount::new(info.number("swapped").unwrap_or(0));
    }
    detail.filesystem = filesystem;
    Ok(Some(CachedFile {
        owner: Owner { name, pages: PageCount::new(pages.pages), file: Some(detail), ..Owner::default() },
        shmem,
        counted: mapping.number("nrpages")?,
        unlinked,
        inode: inode.address(),
        mapping: address,
    }))
}

/// The first name of an inode.
fn alias<'a>(inode: &Object<'a>) -> Result<Option<Object<'a>>, Fault> {
    let first = inode.get("i_dentry.first")?.pointer()?;
    if first == 0 {
        return Ok(None);
    }
    let space = inode.space();
    // An anonymous union since 3b7d764a37d0 (7.1).
    let offset =
        space.offset_of("dentry", "d_u.d_alias").or_else(|_| space.offset_of("dentry", "d_alias"))?;
    Ok(Some(space.object(first.wrapping_sub(offset), "dentry")?))
}

fn file_name(
    dentry: &Object<'_>,
    super_block: &Object<'_>,
    mounts: &mut Mounts,
    shmem: bool,
) -> Result<String, Fault> {
    if is_object(dentry, super_block, shmem)? {
        return dentry.any(&["d_name.name", "__d_name.name"])?.text();
    }
    let inside = path(dentry)?;
    Ok(match mounts.of(super_block) {
        Some(directory) => format!("{directory}{inside}"),
        None => inside,
    })
}

/// Whether a name is one without a directory: of shared anonymous memory, a SysV segment, a memfd, a GEM object.
fn is_object(dentry: &Object<'_>, super_block: &Object<'_>, shmem: bool) -> Result<bool, Fault> {
    let is_root = dentry.number("d_parent")? == dentry.address();
    Ok(shmem && is_root && super_block.number("s_root")? != dentry.address())
}

/// The name of a disk or partition whose inode is in `bdev_inode`.
fn block_device(inode: &Object<'_>) -> Result<String, Fault> {
    let device = inode.container("bdev_inode", "vfs_inode")?.get("bdev")?;
    let disk = device.get("bd_disk->disk_name")?.text()?;
    let part = device
        .number("bd_partno")
        .or_else(|_| Ok::<u64, Fault>(device.number("__bd_flags.counter")? & 0xff))?;
    Ok(match part {
        0 => format!("block device {disk}"),
        part => format!("block device {disk}, partition {part}"),
    })
}

/// Notes who holds files that have no name left.
pub(crate) fn note_holders(
    machine: &Machine<'_>,
    processes: &mut Processes<'_>,
    files: &mut [CachedFile],
    open: impl FnOnce(&HashSet<u64>) -> HashMap<u64, Held>,
) {
    let inodes: HashSet<u64> = files.iter().filter(|file| file.unlinked).map(|file| file.inode).collect();
    if inodes.is_empty() {
        return;
    }
    let mut held = open(&inodes);
    for file in files.iter_mut().filter(|file| file.unlinked) {
        let mut held = held.remove(&file.inode).unwrap_or_default();
        let _ = mapped_by(machine, processes, file.mapping, &mut held);
        if let Some(detail) = &mut file.owner.file {
            detail.held_by = held.names;
            detail.holders = held.count;
        }
    }
}

/// Adds the processes that map an address space.
fn mapped_by(
    machine: &Machine<'_>,
    processes: &mut Processes<'_>,
    mapping: u64,
    held: &mut Held,
) -> Result<(), Fault> {
    let root = machine.space().object(mapping, "address_space")?.get("i_mmap.rb_root")?;
    for area in root.tree("vm_area_struct", "shared.rb")?.items.into_iter().take(MAX_MAPPINGS) {
        held.add(processes.name(area.number("vm_mm")?));
    }
    Ok(())
}
