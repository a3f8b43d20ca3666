//! Lists, trees and arrays of the kernel. Every walk ends, whatever memory holds: nodes are counted, and none is visited
//! twice.

use std::collections::HashSet;

use pagehaul_kernel::ReadVirtual;

use crate::fault::Fault;
use crate::object::Object;

/// Objects of one walk. 4 million tasks is the kernel's own limit (PID_MAX_LIMIT).
const MAX_NODES: usize = 4 << 20;
/// Nodes of a tree that are announced.
const MAX_ANNOUNCED: usize = 1 << 14;
/// Bytes of `struct rb_node`.
const RB_NODE: u64 = 24;
/// Levels of a red-black tree of that many nodes.
const DEEPEST_TREE: usize = 128;
/// Levels of an xarray: 64 bits, 4 to 6 a level.
const DEEPEST_XARRAY: u64 = 64;

/// What a walk found.
#[derive(Debug)]
pub struct Walk<T> {
    /// The objects, in order.
    pub items: Vec<T>,
    /// Why the walk did not reach the end.
    pub broken: Option<String>,
}

impl<T> Walk<T> {
    fn whole(items: Vec<T>) -> Self {
        Self { items, broken: None }
    }
}

impl<'a> Object<'a> {
    /// Returns the structures linked into the list whose head (`struct list_head`) is here, by their member `link`. Where
    /// the list is broken, the other direction gives the rest.
    pub fn list(&self, record: &str, link: &str) -> Result<Walk<Self>, Fault> {
        let space = self.space();
        let offset = space.offset_of(record, link)?;
        let record = space.record(record)?;
        let memory = space.memory();
        let head = self.address();
        let mut seen = HashSet::from([head]);
        let mut broken = None;
        // next is the first word, prev the second.
        let mut direction = |word: u64, seen: &mut HashSet<u64>| {
            let mut nodes = Vec::new();
            let mut at = head;
            loop {
                match memory.u64(at.wrapping_add(word)) {
                    Ok(next) if next == head => return (nodes, true),
                    Ok(next) if !seen.insert(next) => {
                        broken.get_or_insert_with(|| {
                            format!("the list at {head:#x} meets itself at {next:#x}")
                        });
                        return (nodes, false);
                    }
                    Ok(next) => {
                        nodes.push(next);
                        at = next;
                    }
                    Err(error) => {
                        // A node that cannot be read is skipped.
                        if nodes.last() == Some(&at) {
                            nodes.pop();
                        }
                        broken.get_or_insert_with(|| format!("the list at {head:#x} ends early: {error}"));
                        return (nodes, false);
                    }
                }
                if seen.len() > MAX_NODES || !space.take_node() {
                    broken.get_or_insert_with(|| format!("the list at {head:#x} has too many entries"));
                    return (nodes, false);
                }
            }
        };
        let (mut nodes, whole) = direction(0, &mut seen);
        if !whole {
            let (back, _) = direction(8, &mut seen);
            nodes.extend(back.into_iter().rev());
        }
        let items: Vec<Self> =
            nodes.into_iter().map(|node| Object::new(space, node.wrapping_sub(offset), record)).collect();
        space.will_need(&items);
        Ok(Walk { items, broken })
    }

    /// Returns the structures of the red-black tree whose root (`struct rb_root`) is here, in order, by their member
    /// `node`.
    pub fn tree(&self, record: &str, node: &str) -> Result<Walk<Self>, Fault> {
        let space = self.space();
        let offset = space.offset_of(record, node)?;
        let record = space.record(record)?;
        let memory = space.memory();
        let left = space.offset_of("rb_node", "rb_left")?;
        let right = space.offset_of("rb_node", "rb_right")?;
        let mut at = self.get("rb_node")?.pointer()?;
        if memory.is_remote() {
            announce_tree(memory, at, [left, right]);
        }
        let mut above: Vec<u64> = Vec::new();
        let mut walk = Walk::whole(Vec::new());
        let mut seen = HashSet::new();
        while at != 0 || !above.is_empty() {
            while at != 0 {
                if !seen.insert(at) {
                    walk.broken = Some(format!("the tree at {:#x} meets itself at {at:#x}", self.address()));
                    break;
                }
                if above.len() >= DEEPEST_TREE || seen.len() > MAX_NODES || !space.take_node() {
                    walk.broken = Some(format!("the tree at {:#x} is too deep or too large", self.address()));
                    return Ok(walk);
                }
                match memory.u64(at.wrapping_add(left)) {
                    Ok(next) => {
                        above.push(at);
                        at = next;
                    }
                    Err(error) => {
                        walk.broken = Some(format!("the tree at {:#x}: {error}", self.address()));
                        at = 0;
                    }
                }
            }
            let Some(node) = above.pop() else { break };
            walk.items.push(Object::new(space, node.wrapping_sub(offset), record));
            at = memory.u64(node.wrapping_add(right)).unwrap_or_else(|error| {
                walk.broken = Some(format!("the tree at {:#x}: {error}", self.address()));
                0
            });
        }
        space.will_need(&walk.items);
        Ok(walk)
    }

    /// Returns index and pointer of every entry of the xarray (`struct xarray`) here. Value entries, which are no
    /// pointers, are skipped.
    pub fn xarray(&self) -> Result<Walk<(u64, u64)>, Fault> {
        let space = self.space();
        let head = self.get("xa_head")?.pointer()?;
        let mut walk = Walk::whole(Vec::new());
        let mut work = vec![(head, 0_u64, DEEPEST_XARRAY)];
        let mut seen = HashSet::new();
        let mut visited = 0;
        while let Some((entry, index, above)) = work.pop() {
            visited += 1;
            if visited > MAX_NODES || !space.take_node() {
                walk.broken = Some(format!("the xarray at {:#x} is too large", self.address()));
                break;
            }
            if !is_node(entry) {
                if entry != 0 && entry & 1 == 0 && entry & 3 == 0 {
                    walk.items.push((index, entry));
                }
                continue;
            }
            if !seen.insert(entry) {
                walk.broken = Some(format!("the xarray at {:#x} meets itself at {entry:#x}", self.address()));
                continue;
            }
            let record = space.record("xa_node")?;
            let node = Object::new(space, entry - 2, record);
            let (shift, slots) = match (node.number("shift"), node.get("slots")) {
                (Ok(shift), Ok(slots)) => (shift, slots),
                (Err(why), _) | (_, Err(why)) => {
                    walk.broken = Some(format!("the xarray at {:#x}: {why}", self.address()));
                    continue;
                }
            };
            if shift >= above {
                walk.broken = Some(format!("the xarray at {:#x} contradicts itself", self.address()));
                continue;
            }
            let children = work.len();
            for slot in (0..slots.len().min(64)).rev() {
                match slots.index(slot).and_then(|slot| slot.pointer()) {
                    Ok(0) => {}
                    Ok(entry) => work.push((entry, index.wrapping_add(slot << shift), shift)),
                    Err(error) => walk.broken = Some(error.to_string()),
                }
            }
            if space.memory().is_remote() {
                let children = work.get(children..).unwrap_or_default().iter();
                let nodes = children.filter(|(entry, ..)| is_node(*entry)).map(|(entry, ..)| entry - 2);
                space.will_need(&nodes.map(|node| Object::new(space, node, record)).collect::<Vec<_>>());
            }
        }
        Ok(walk)
    }
}

/// As `xa_is_node`: the low bits are 10; beyond 4096 it is a node.
fn is_node(entry: u64) -> bool {
    entry & 3 == 2 && entry > 4096
}

/// Announces the nodes of a red-black tree, one level after the other. Each node has the pointers `links`.
fn announce_tree(memory: &dyn ReadVirtual, root: u64, links: [u64; 2]) {
    let mut level = vec![root];
    let mut visited = 0;
    for _ in 0..DEEPEST_TREE {
        level.retain(|node| *node != 0);
        visited += level.len();
        if level.is_empty() || visited > MAX_ANNOUNCED {
            return;
        }
        memory.will_need(&level.iter().map(|node| *node..node.saturating_add(RB_NODE)).collect::<Vec<_>>());
        let next =
            level.iter().flat_map(|node| links.map(|link| memory.u64(node.wrapping_add(link)).unwrap_or(0)));
        level = next.collect();
    }
}
