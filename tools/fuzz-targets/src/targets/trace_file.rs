//! A recorded trace of any format: every field of every event, and the report.

use pagehaul_reclaim::{Comparison, analyse};
use pagehaul_render::reclaim as render;
use pagehaul_trace::{EventSource, Input, TraceFile};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(mut recording) = TraceFile::from_input(Input::memory(data.to_vec(), "fuzzed")) else { return };
    while let Ok(Some(event)) = recording.next_event() {
        event.pid();
        event.comm();
        for field in &event.format().fields {
            event.u64(field.slot);
            event.text(field.slot);
            event.bytes(field.slot);
            event.elements(field.slot).into_iter().flatten().for_each(drop);
        }
    }
    recording.losses();
    let Ok(mut recording) = TraceFile::from_input(Input::memory(data.to_vec(), "fuzzed")) else { return };
    if let Ok(report) = analyse(&mut recording, "fuzzed", "fuzzed") {
        render::report(&report);
        let reports = [report.clone(), report];
        render::comparison_page(&Comparison::new(&reports), &reports);
    }
}
