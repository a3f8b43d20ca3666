//! Facts of a crash as tables (docs/schema.md).

use pagehaul_facts::{Facts, SCHEMA_VERSION};

use crate::table::{Table, Values};

/// What is known of the file, other than its path: the same dump has the same tables wherever it is.
#[derive(Debug)]
pub(crate) struct DumpFile {
    pub(crate) format: &'static str,
    pub(crate) level: Option<i32>,
    pub(crate) complete: Option<bool>,
    pub(crate) size_bytes: Option<i64>,
}

fn long(value: impl TryInto<i64>) -> Option<i64> {
    value.try_into().ok()
}

/// The tables of a crash.
pub(crate) fn tables(facts: Facts, file: &DumpFile) -> Vec<Table> {
    vec![dumps(&facts, file), log_lines(facts)]
}

fn dumps(facts: &Facts, file: &DumpFile) -> Table {
    let crash = facts.crash.as_ref();
    let text = |value: &Option<String>| Values::Text(vec![value.clone()]);
    let of_crash =
        |get: &dyn Fn(&pagehaul_facts::Crash) -> Option<String>| Values::Text(vec![crash.and_then(get)]);
    let number = |value: Option<u32>| Values::Int(vec![value.and_then(|value| i32::try_from(value).ok())]);
    let columns = vec![
        ("crash_id", Values::Text(vec![Some(facts.id.crash_id.clone())])),
        ("schema_version", Values::Int(vec![i32::try_from(SCHEMA_VERSION).ok()])),
        ("extractor", Values::Text(vec![Some(facts.extractor.clone())])),
        ("id_weak", Values::Bool(vec![Some(facts.id.id_weak)])),
        ("format", Values::Text(vec![Some(file.format.to_owned())])),
        ("level", Values::Int(vec![file.level])),
        ("complete", Values::Bool(vec![file.complete])),
        ("size_bytes", Values::Long(vec![file.size_bytes])),
        ("release", text(&facts.release)),
        ("version", text(&facts.version)),
        ("build_id", text(&facts.build_id)),
        ("arch", Values::Text(vec![Some(facts.arch.clone())])),
        ("host", text(&facts.host)),
        (
            "crash_time",
            Values::Time(vec![facts.crash_time.and_then(long).and_then(|time| time.checked_mul(1_000_000))]),
        ),
        ("cpus", number(Some(facts.cpus))),
        ("memory_bytes", Values::Long(vec![long(facts.memory_bytes)])),
        ("page_size", Values::Long(vec![facts.page_size.and_then(long)])),
        ("kind", of_crash(&|crash| Some(crash.signature.kind.name().to_owned()))),
        ("title", of_crash(&|crash| Some(crash.title.clone()))),
        ("sig", of_crash(&|crash| Some(crash.signature.sig.clone()))),
        ("sig_fine", of_crash(&|crash| Some(crash.signature.sig_fine.clone()))),
        ("sig_version", number(crash.map(|crash| crash.signature.version))),
        (
            "frames",
            Values::Texts(vec![crash.map(|crash| crash.signature.frames.clone()).unwrap_or_default()]),
        ),
        ("panic", of_crash(&|crash| crash.panic.clone())),
        ("oops_text", of_crash(&|crash| Some(crash.text.clone()))),
        ("task", of_crash(&|crash| crash.task.clone())),
        ("pid", number(crash.and_then(|crash| crash.pid))),
        ("cpu", number(crash.and_then(|crash| crash.cpu))),
        ("taint", of_crash(&|crash| crash.taint.clone())),
        ("hardware", of_crash(&|crash| crash.hardware.clone())),
        ("uptime_ns", Values::Long(vec![crash.and_then(|crash| long(crash.uptime_ns))])),
    ];
    Table { name: "dumps", rows: 1, columns }
}

fn log_lines(facts: Facts) -> Table {
    let rows = facts.log.len();
    let all = |text: &str| Values::Text(vec![Some(text.to_owned()); rows]);
    let log = &facts.log;
    let int = |get: &dyn Fn(&pagehaul_facts::LogRecord) -> Option<u32>| {
        Values::Int(
            log.iter().map(|record| get(record).and_then(|value| i32::try_from(value).ok())).collect(),
        )
    };
    let columns = vec![
        ("crash_id", all(&facts.id.crash_id)),
        ("schema_version", Values::Int(vec![i32::try_from(SCHEMA_VERSION).ok(); rows])),
        ("extractor", all(&facts.extractor)),
        ("seq", Values::Long(log.iter().map(|record| record.seq.and_then(long)).collect())),
        ("time_ns", Values::Long(log.iter().map(|record| long(record.time_ns)).collect())),
        ("level", int(&|record| Some(record.level.into()))),
        ("facility", int(&|record| Some(record.facility.into()))),
        ("task", int(&|record| record.task)),
        ("cpu", int(&|record| record.cpu)),
        ("text", Values::Text(log.iter().map(|record| Some(record.text.clone())).collect())),
    ];
    Table { name: "log_lines", rows, columns }
}
