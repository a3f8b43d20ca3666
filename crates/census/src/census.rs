use std::collections::BTreeMap;

use serde::Serialize;

use crate::map::Map;

/// What physical memory was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Census {
    /// The dump.
    pub heading: Heading,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages of the machine.
    pub pages: u64,
    /// Pages by class.
    pub classes: Vec<ClassCount>,
    /// Pages by node and zone; empty if VMCOREINFO does not say where `page.flags` holds them.
    pub zones: Vec<ZoneCount>,
    /// Pages by node, zone, class and order of their block.
    #[serde(skip)]
    pub usage: Vec<Usage>,
    /// Blocks of 2^order pages, by class and order. Order 0 are single pages; free blocks are those of the buddy
    /// allocator, the others compound pages.
    pub orders: BTreeMap<&'static str, BTreeMap<u32, u64>>,
    /// The classes in the order of the counts in the cells of the map.
    pub class_names: Vec<&'static str>,
    /// Pages by address.
    pub map: Map,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// The dump that a census is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Heading {
    /// The file.
    pub dump: String,
    /// `uname -r`.
    pub release: Option<String>,
    /// Seconds since 1970 at the crash.
    pub crash_time: Option<u64>,
}

/// Pages of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The name of the class.
    pub class: &'static str,
    /// Pages.
    pub pages: u64,
    /// Pages of them that the dump holds.
    pub in_dump: u64,
}

/// Pages of one class in blocks of one order of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Number of the node and name of the zone; `None` if they are unknown.
    pub place: Option<(u64, &'static str)>,
    /// The name of the class.
    pub class: &'static str,
    /// Order of the blocks; 0 for single pages.
    pub order: u32,
    /// Pages.
    pub pages: u64,
    /// Pages of them that the dump holds.
    pub in_dump: u64,
}

/// Pages of one zone of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZoneCount {
    /// The number of the node.
    pub node: u64,
    /// The name of the zone.
    pub zone: &'static str,
    /// Pages by class.
    pub classes: BTreeMap<&'static str, u64>,
}

impl ZoneCount {
    /// Returns the pages of all classes.
    pub fn pages(&self) -> u64 {
        self.classes.values().sum()
    }
}
