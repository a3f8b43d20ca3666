//! Maple trees (include/linux/maple_tree.h; 54a611b60590, 6.1).

use crate::collect::Walk;
use crate::fault::Fault;
use crate::object::Object;

/// Nodes are aligned to 256 bytes: the low byte of a pointer to one holds its type and flags.
const NODE_FLAGS: u64 = 0xff;
/// Entries up to this one are reserved (`XA_ZERO_ENTRY` and the like), even where their low bits are those of a node.
const LAST_RESERVED: u64 = 4096;
/// `MAPLE_HEIGHT_MAX`.
const DEEPEST: usize = 31;

/// What a maple tree stores for a range of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapleEntry {
    /// First index.
    pub first: u64,
    /// Last index.
    pub last: u64,
    /// The pointer that is stored.
    pub pointer: u64,
}

/// A node that is still to be read, and the indices that it covers.
struct Node {
    entry: u64,
    first: u64,
    last: u64,
    depth: usize,
}

impl Object<'_> {
    /// Returns the entries of the maple tree (`struct maple_tree`) here, in order. Value entries, which are not pointers, are
    /// skipped.
    pub fn maple_tree(&self) -> Result<Walk<MapleEntry>, Fault> {
        let mut walk = Walk { items: Vec::new(), broken: None };
        let root = self.get("ma_root")?.pointer()?;
        // xa_is_node(): a tree with a single entry for index 0 has no node.
        if root & 3 != 2 || root <= LAST_RESERVED {
            walk.items.extend(stored(root, 0, 0));
            return Ok(walk);
        }
        let mut nodes = vec![Node { entry: root, first: 0, last: u64::MAX, depth: 0 }];
        while let Some(node) = nodes.pop() {
            let first_child = nodes.len();
            if let Err(why) = self.slots(&node, &mut nodes, &mut walk.items) {
                walk.broken.get_or_insert_with(|| format!("the maple tree at {:#x}: {why}", self.address()));
            }
            // The first child is next.
            nodes.get_mut(first_child..).unwrap_or_default().reverse();
        }
        Ok(walk)
    }

    /// Reads one node: adds its children to `nodes`, or its entries to `entries`.
    fn slots(&self, node: &Node, nodes: &mut Vec<Node>, entries: &mut Vec<MapleEntry>) -> Result<(), String> {
        let space = self.space();
        // `mte_node_type`. 1, 2 and 3 are maple_leaf_64, maple_range_64 and maple_arange_64.
        let (record, is_leaf) = match node.entry >> 3 & 0xf {
            1 => ("maple_range_64", true),
            2 => ("maple_range_64", false),
            3 => ("maple_arange_64", false),
            other => return Err(format!("a node has the unknown type {other}")),
        };
        if node.depth >= DEEPEST {
            return Err("it is too deep".into());
        }
        let object = space.object(node.entry & !NODE_FLAGS, record).map_err(|why| why.to_string())?;
        let field = |path| object.get(path).map_err(|why: Fault| why.to_string());
        let (pivots, slots) = (field("pivot")?, field("slot")?);
        let mut first = node.first;
        for at in 0..slots.len() {
            if !space.take_node() {
                return Err("it has too many entries".into());
            }
            let word = |array: &Object<'_>| {
                array.index(at).and_then(|word| word.unsigned()).map_err(|why| why.to_string())
            };
            // `mas_logical_pivot`: a pivot of 0 behind the first slot is unused, and the slot before it is the last.
            let last = match at < pivots.len() {
                true => Some(word(&pivots)?).filter(|pivot| *pivot != 0 || at == 0).unwrap_or(node.last),
                false => node.last,
            };
            if last < first || last > node.last {
                return Err("its pivots contradict each other".into());
            }
            let entry = word(&slots)?;
            if is_leaf {
                entries.extend(stored(entry, first, last));
            } else if entry > LAST_RESERVED {
                nodes.push(Node { entry, first, last, depth: node.depth + 1 });
            }
            if last == node.last {
                break;
            }
            first = last + 1;
        }
        Ok(())
    }
}

/// Returns an entry that is a pointer: the low bits of value entries and reserved ones are not 0.
fn stored(pointer: u64, first: u64, last: u64) -> Option<MapleEntry> {
    (pointer != 0 && pointer & 3 == 0).then_some(MapleEntry { first, last, pointer })
}
