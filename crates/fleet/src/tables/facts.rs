//! Tables of the facts: `dumps` and `log_lines`.

use pagehaul_facts::{Crash, Facts};

use super::{longs, texts};
use crate::table::{Key, Table, Values};

/// What is known of the file, other than its path: the same dump has the same tables wherever it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DumpFile {
    pub(crate) format: &'static str,
    pub(crate) level: Option<u32>,
    pub(crate) complete: Option<bool>,
    pub(crate) size_bytes: Option<u64>,
}

/// Makes `dumps` and `log_lines`.
pub(crate) fn facts(facts: &Facts, key: &Key, file: &DumpFile) -> [Table; 2] {
    [dumps(facts, key, file), log_lines(facts, key)]
}

fn dumps(facts: &Facts, key: &Key, file: &DumpFile) -> Table {
    let crash = facts.crash.as_ref();
    let text = |value: &Option<String>| Values::text([value.clone()]);
    let of_crash = |get: &dyn Fn(&Crash) -> Option<String>| Values::text([crash.and_then(get)]);
    let time = facts.crash_time.and_then(|time| i64::try_from(time).ok()?.checked_mul(1_000_000));
    let frames = crash.map(|crash| crash.signature.frames.clone()).unwrap_or_default();
    let columns = [
        ("id_weak", Values::Bool(vec![Some(facts.id.id_weak)])),
        ("format", Values::text([Some(file.format)])),
        ("level", Values::int([file.level])),
        ("complete", Values::Bool(vec![file.complete])),
        ("size_bytes", Values::long([file.size_bytes])),
        ("release", text(&facts.release)),
        ("version", text(&facts.version)),
        ("build_id", text(&facts.build_id)),
        ("arch", Values::text([Some(facts.arch.clone())])),
        ("host", text(&facts.host)),
        ("crash_time", Values::Time(vec![time])),
        ("cpus", Values::int([Some(facts.cpus)])),
        ("memory_bytes", Values::long([Some(facts.memory_bytes)])),
        ("page_size", Values::long([facts.page_size])),
        ("kind", of_crash(&|crash| Some(crash.signature.kind.name().to_owned()))),
        ("title", of_crash(&|crash| Some(crash.title.clone()))),
        ("sig", of_crash(&|crash| Some(crash.signature.sig.clone()))),
        ("sig_fine", of_crash(&|crash| Some(crash.signature.sig_fine.clone()))),
        ("sig_version", Values::int([crash.map(|crash| crash.signature.version)])),
        ("sig_coarse", of_crash(&|crash| crash.signature.sig_coarse.clone())),
        ("coarse_version", Values::int([crash.and_then(|crash| crash.signature.coarse_version)])),
        ("frames", Values::texts([frames])),
        ("panic", of_crash(&|crash| crash.panic.clone())),
        ("oops_text", of_crash(&|crash| Some(crash.text.clone()))),
        ("task", of_crash(&|crash| crash.task.clone())),
        ("pid", Values::int([crash.and_then(|crash| crash.pid)])),
        ("cpu", Values::int([crash.and_then(|crash| crash.cpu)])),
        ("taint", of_crash(&|crash| crash.taint.clone())),
        ("hardware", of_crash(&|crash| crash.hardware.clone())),
        ("uptime_ns", Values::long([crash.map(|crash| crash.uptime_ns)])),
        ("log_whole", Values::Bool(vec![Some(facts.read_whole_log())])),
    ];
    Table::new("dumps", key, columns)
}

fn log_lines(facts: &Facts, key: &Key) -> Table {
    let log = facts.log.as_slice();
    let columns = [
        ("seq", Values::long(log.iter().map(|record| record.seq))),
        ("time_ns", longs(log, |record| record.time_ns)),
        ("level", Values::int(log.iter().map(|record| Some(record.level)))),
        ("facility", Values::int(log.iter().map(|record| Some(record.facility)))),
        ("task", Values::int(log.iter().map(|record| record.task))),
        ("cpu", Values::int(log.iter().map(|record| record.cpu))),
        ("text", texts(log, |record| record.text.as_str())),
    ];
    Table::new("log_lines", key, columns)
}
