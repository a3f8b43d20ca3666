//! Collects what events refer to while it still exists: tasks, cgroups, functions.

use std::collections::{BTreeMap, BTreeSet};

use super::machine;
use crate::abi::Abi;
use crate::format::{FieldKind, Formats, Slot};
use crate::ring::{SubBufferCursor, SubBufferLayout};

/// Fields of interest in one event.
#[derive(Default, Clone, Copy)]
struct Interest {
    /// Look up the cgroup of the current task.
    task: bool,
    symbol: Option<Slot>,
    cgroup: Option<Slot>,
}

/// Collects references from sub-buffers.
pub(super) struct References {
    layout: SubBufferLayout,
    interests: Vec<Interest>,
    id: Slot,
    pid: Slot,
    last_pid: i32,
    pub(super) events: u64,
    pub(super) addresses: BTreeSet<u64>,
    pub(super) cgroup_ids: BTreeSet<u64>,
    pub(super) tasks: BTreeMap<i32, String>,
}

/// Fields that hold the address of a function.
const SYMBOLS: [&str; 2] = ["shrink", "function"];

impl References {
    pub(super) fn new(formats: &Formats, layout: SubBufferLayout) -> Self {
        let slot = |name: &str, offset, size| {
            let found = formats.iter().find_map(|format| format.slot(name));
            found.unwrap_or(Slot { offset, size, kind: FieldKind::Integer { signed: false } })
        };
        let mut interests = Vec::new();
        for format in formats.iter() {
            let id = format.id as usize;
            // Records hold the id in 16 bits.
            if id > usize::from(u16::MAX) {
                continue;
            }
            if interests.len() <= id {
                interests.resize(id + 1, Interest::default());
            }
            interests[id] = Interest {
                task: format.system == "vmscan" && format.name.ends_with("_begin"),
                symbol: format.any_slot(&SYMBOLS),
                cgroup: format.slot("memcg_id"),
            };
        }
        Self {
            layout,
            interests,
            id: slot("common_type", 0, 2),
            pid: slot("common_pid", 4, 4),
            last_pid: 0,
            events: 0,
            addresses: BTreeSet::new(),
            cgroup_ids: BTreeSet::new(),
            tasks: BTreeMap::new(),
        }
    }

    /// Scans a sub-buffer. Damage is left to the reader of the recording.
    pub(super) fn page(&mut self, page: &[u8]) {
        let Ok(mut cursor) = SubBufferCursor::new(page, self.layout) else { return };
        let abi = self.layout.abi;
        while let Ok(Some(record)) = cursor.next_record(page) {
            self.events += 1;
            let data = page.get(record.start..record.end).unwrap_or_default();
            let Some(id) = number(abi, data, self.id) else { continue };
            let Some(&interest) = self.interests.get(id as usize) else { continue };
            if let Some(slot) = interest.symbol
                && let Some(address) = number(abi, data, slot)
            {
                self.addresses.insert(address);
            }
            if let Some(slot) = interest.cgroup
                && let Some(id) = number(abi, data, slot)
            {
                self.cgroup_ids.insert(id);
            }
            if interest.task
                && let Some(pid) = number(abi, data, self.pid).map(|pid| pid as i32)
                && pid != self.last_pid
            {
                self.last_pid = pid;
                self.tasks.entry(pid).or_insert_with(|| machine::cgroup_of(pid).unwrap_or_default());
            }
        }
    }
}

fn number(abi: Abi, data: &[u8], slot: Slot) -> Option<u64> {
    abi.unsigned(data.get(slot.offset as usize..)?.get(..slot.size as usize)?)
}
