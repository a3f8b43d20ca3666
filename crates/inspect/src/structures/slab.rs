//! Slab caches (SLUB).

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::PageCount;
use serde::Serialize;

use super::announce;
use super::ram::ram_bytes;
use crate::hex::Hex;
use crate::machine::Machine;

/// A cache.
#[derive(Debug, Clone, Serialize)]
pub struct Cache {
    /// Name.
    pub name: String,
    /// Bytes of an object.
    pub object_size: u64,
    /// Objects that its slabs have room for.
    pub objects: u64,
    /// Slabs.
    pub slabs: u64,
    /// Bytes of its slabs.
    pub bytes: u64,
    /// Address of its `struct kmem_cache`.
    #[serde(skip)]
    pub address: Hex,
    /// Pages of its slabs.
    #[serde(skip)]
    pub pages: PageCount,
}

/// Reads all caches, the largest first, and why some may be missing.
pub fn caches(machine: &Machine<'_>) -> Result<(Vec<Cache>, Option<String>), Fault> {
    let walk = machine.variable("slab_caches", "list_head")?.list("kmem_cache", "list")?;
    let mut broken = walk.broken;
    let nodes = machine.u32("nr_node_ids").map_or(1, u64::from).clamp(1, 1024);
    announce::caches(machine, &walk.items);
    let ram = ram_bytes(machine);
    let mut found = Vec::new();
    for object in walk.items {
        match cache(machine, &object, nodes) {
            Ok(cache) if cache.bytes > ram => {
                broken.get_or_insert_with(|| {
                    format!(
                        "the cache {} is not shown: {} bytes are more than the memory of the machine: it is damaged",
                        cache.name, cache.bytes
                    )
                });
            }
            Ok(cache) => found.push(cache),
            Err(why) => {
                broken.get_or_insert_with(|| {
                    format!("the cache at {:#x} is not shown: {why}", object.address())
                });
            }
        }
    }
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    Ok((found, broken))
}

/// Returns the address of the `struct kmem_cache_node` of a cache for a node; 0 if it has none.
pub fn cache_node(cache: &Object<'_>, node: u64) -> Result<u64, Fault> {
    // 5ba6bc27b1f9 (7.1) moved node into per_node.
    match cache.get("per_node") {
        Ok(all) => all.index(node)?.get("node")?.pointer(),
        Err(_) => cache.get("node")?.index(node)?.pointer(),
    }
}

/// Returns the address of the first `struct page` of the compound page that a page is in, its own if it is in none.
pub fn page_head(page: &Object<'_>) -> Result<u64, Fault> {
    // d50569612c29 (7.1) renamed the field.
    let compound = page.number("compound_info").or_else(|_| page.number("compound_head"))?;
    Ok(pagehaul_kernel::page_head(page.address(), compound))
}

fn cache(machine: &Machine<'_>, object: &Object<'_>, nodes: u64) -> Result<Cache, Fault> {
    let order = object.number("oo.x")? >> 16;
    let (mut slabs, mut objects) = (0_u64, 0_u64);
    for node in 0..nodes {
        let pointer = cache_node(object, node)?;
        if pointer != 0 {
            let node = machine.space().object(pointer, "kmem_cache_node")?;
            slabs = slabs.saturating_add(node.number("nr_slabs")?);
            objects = objects.saturating_add(node.number("total_objects")?);
        }
    }
    let pages = PageCount::new(slabs.saturating_mul(1 << order.min(16)));
    Ok(Cache {
        name: object.get("name")?.text()?,
        object_size: object.number("object_size")?,
        objects,
        slabs,
        bytes: pages.bytes(machine.page_size()),
        address: Hex(object.address()),
        pages,
    })
}
