//! What a lock protects, as far as its address tells.

use std::collections::{HashMap, HashSet};

use pagehaul_btf::{Fault, Object};

use crate::machine::Machine;
use crate::structures::paths::path;
use crate::structures::slab::page_head;
use crate::structures::tasks::Tasks;

/// What locks can be part of.
pub(super) struct Names {
    super_blocks: HashSet<u64>,
    /// `mmap_lock` of each process.
    memories: HashMap<u64, String>,
}

impl Names {
    pub(super) fn new(machine: &Machine<'_>, tasks: &Tasks) -> Self {
        let super_blocks =
            machine.variable("super_blocks", "list_head").and_then(|head| head.list("super_block", "s_list"));
        let offset = machine
            .space()
            .offset_of("mm_struct", "mmap_lock")
            .or_else(|_| machine.space().offset_of("mm_struct", "mmap_sem"));
        let mut memories = HashMap::new();
        if let Ok(offset) = offset {
            for task in tasks.all.iter().filter(|task| task.mm.0 != 0) {
                memories
                    .entry(task.mm.0.wrapping_add(offset))
                    .or_insert_with(|| format!("mmap_lock of {}/{}", task.comm, task.tgid));
            }
        }
        let super_blocks = super_blocks.map(|walk| walk.items.iter().map(|block| block.address()).collect());
        Self { super_blocks: super_blocks.unwrap_or_default(), memories }
    }

    pub(super) fn of(&self, machine: &Machine<'_>, lock: &Object<'_>, record: &str) -> String {
        let address = lock.address();
        if let Some(name) = self.memories.get(&address) {
            return name.clone();
        }
        if record == "rw_semaphore" {
            if let Ok(inode) = lock.container("inode", "i_rwsem")
                && let Ok(name) = self.inode(&inode)
            {
                return name;
            }
            if let Ok(block) = lock.container("super_block", "s_umount")
                && self.super_blocks.contains(&block.address())
            {
                return format!("s_umount of {}", file_system(&block));
            }
        }
        if machine.symbols().is_static(address)
            && let Some(name) = machine.symbols().name(address)
        {
            let module = name.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
            return match name.offset {
                0 => format!("{}{module}", name.symbol),
                offset => format!("{}+{offset:#x}{module}", name.symbol),
            };
        }
        slab_cache(machine, address).unwrap_or_else(|_| format!("at {address:#x}"))
    }

    fn inode(&self, inode: &Object<'_>) -> Result<String, Fault> {
        let block = inode.get("i_sb")?.target()?;
        if !self.super_blocks.contains(&block.address()) {
            return Err(Fault::Null(inode.address()));
        }
        let number = inode.number("i_ino")?;
        let path = inode.get("i_dentry").and_then(|names| {
            let first = names.get("first")?.pointer()?;
            let space = inode.space();
            let offset =
                space.offset_of("dentry", "d_u.d_alias").or_else(|_| space.offset_of("dentry", "d_alias"))?;
            if first == 0 {
                return Err(Fault::Null(inode.address()));
            }
            path(&space.object(first.wrapping_sub(offset), "dentry")?)
        });
        let path = path.map_or_else(|_| String::new(), |path| format!(" {path}"));
        Ok(format!("i_rwsem of inode {number} on {}{path}", file_system(&block)))
    }
}

fn file_system(block: &Object<'_>) -> String {
    let kind = block.get("s_type->name").and_then(|name| name.text()).unwrap_or_default();
    let device = block.get("s_id").and_then(|name| name.text()).unwrap_or_default();
    format!("{device} ({kind})")
}

/// The slab cache that an object of the direct map is in, and where in the object the address lies.
fn slab_cache(machine: &Machine<'_>, address: u64) -> Result<String, Fault> {
    let space = machine.space();
    let physical = address.wrapping_sub(machine.u64("page_offset_base")?);
    let shift = machine.page_size().shift();
    let page_size = space.size_of("page")?;
    let page = machine.u64("vmemmap_base")?.wrapping_add((physical >> shift).wrapping_mul(page_size));
    let head = page_head(&space.object(page, "page")?)?;
    // 8f9c8c5b9b1f (5.17): struct slab.
    let record = if space.btf().record("slab").is_some() { "slab" } else { "page" };
    let slab = space.object(head, record)?;
    let cache = slab.get("slab_cache")?.target()?;
    let size = cache.number("size")?.max(1);
    let pages = head.wrapping_sub(machine.u64("vmemmap_base")?) / page_size.max(1);
    let start = machine.u64("page_offset_base")?.wrapping_add(pages << shift);
    Ok(format!("{}+{:#x}", cache.get("name")?.text()?, address.wrapping_sub(start) % size))
}
