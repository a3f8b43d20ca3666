//! Two recorded traces of any format: the comparison of their reports.

use pagehaul_reclaim::{Comparison, analyse};
use pagehaul_render::reclaim as render;
use pagehaul_trace::{Input, TraceFile};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((size, traces)) = data.split_first_chunk() else { return };
    let first = usize::from(u16::from_le_bytes(*size)).min(traces.len());
    let (before, after) = traces.split_at(first);
    let report = |bytes: &[u8], name| {
        let mut recording = TraceFile::from_input(Input::memory(bytes.to_vec(), name)).ok()?;
        analyse(&mut recording, name, name).ok()
    };
    let reports: Vec<_> = [(before, "before"), (after, "after")]
        .map(|(bytes, name)| report(bytes, name))
        .into_iter()
        .flatten()
        .collect();
    let comparison = Comparison::new(&reports);
    assert!(!render::comparison(&comparison).is_empty() || reports.is_empty());
    render::comparison_page(&comparison, &reports);
}
