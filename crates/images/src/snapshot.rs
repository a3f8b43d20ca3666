//! The layout of a Cloud Hypervisor snapshot, from `state.json` next to its memory file.

use pagehaul_vmcore::{Layout, LayoutError};
use serde_json::Value;

/// Bytes of a `state.json` that are read.
pub const MAX_STATE: u64 = 64 << 20;

/// Returns the layout of `memory-ranges` in a snapshot by Cloud Hypervisor, from its `state.json`: the file has the ranges of
/// `memory_ranges` (`MemoryManagerSnapshotData`, vmm/src/memory_manager.rs), one behind the other.
///
/// # Errors
/// [`LayoutError::Snapshot`] if it has none.
pub fn layout_of_snapshot(state: &[u8]) -> Result<Layout, LayoutError> {
    ranges(state).map(Layout::Ranges).ok_or(LayoutError::Snapshot)
}

fn ranges(state: &[u8]) -> Option<Vec<(u64, Option<u64>, u64)>> {
    let state: Value = serde_json::from_slice(state).ok()?;
    // The state of each part is JSON inside of a string.
    let of_memory = state.pointer("/snapshots/memory-manager/snapshot_data/state")?.as_str()?;
    let of_memory: Value = serde_json::from_str(of_memory).ok()?;
    let mut offset = 0_u64;
    let mut ranges = Vec::new();
    for range in of_memory.pointer("/memory_ranges/data")?.as_array()? {
        let (start, length) = (range.get("gpa")?.as_u64()?, range.get("length")?.as_u64()?);
        let last = start.checked_add(length.checked_sub(1)?)?;
        ranges.push((start, Some(last), offset));
        offset = offset.checked_add(length)?;
    }
    (!ranges.is_empty()).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_one_behind_the_other() {
        let of_memory = r#"{"memory_ranges":{"data":[{"gpa":0,"length":3221225472},{"gpa":4294967296,"length":4096}]},"boot_ram":1}"#;
        let state = serde_json::json!({
            "snapshots": { "memory-manager": { "snapshots": {}, "snapshot_data": { "state": of_memory } } }
        });
        let layout = layout_of_snapshot(state.to_string().as_bytes()).unwrap();
        assert_eq!(layout.to_string(), "0-bfffffff@0,100000000-100000fff@c0000000");
    }

    #[test]
    fn other_documents_are_refused() {
        let of_memory = |text: &str| {
            let snapshot = serde_json::json!({ "snapshot_data": { "state": text } });
            serde_json::json!({ "snapshots": { "memory-manager": snapshot } }).to_string()
        };
        for state in [
            "{}".to_owned(),
            "1".to_owned(),
            of_memory("{}"),
            of_memory(r#"{"memory_ranges":{"data":[]}}"#),
            of_memory(r#"{"memory_ranges":{"data":[{"gpa":0,"length":0}]}}"#),
            of_memory(r#"{"memory_ranges":{"data":[{"gpa":18446744073709551615,"length":2}]}}"#),
            of_memory(r#"{"memory_ranges":{"data":[{"gpa":-1,"length":2}]}}"#),
        ] {
            assert_eq!(layout_of_snapshot(state.as_bytes()), Err(LayoutError::Snapshot), "{state}");
        }
    }
}
