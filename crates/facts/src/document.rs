//! The facts of a crash as one document (docs/schema.md).

use pagehaul_elfcore::notes;
use pagehaul_kernel::{AddressSpace, Caller, KernelLog, VmcoreInfo};
use pagehaul_physmem::{PAGE_SHIFT, PhysMemory};
use serde::{Deserialize, Serialize};

use crate::crash::Crash;
use crate::identity::is_damaged;
use crate::identity::{CrashId, crash_id};
use crate::line::lines_of;
use crate::names::UtsNames;

/// Version of the document. Fields are added without a new one; a field that changes its meaning gives another.
pub const SCHEMA_VERSION: u32 = 1;

/// Bytes of log text that are kept, the last ones: `log_buf_len` can be large.
const MAX_LOG: usize = 8 << 20;

/// How the reason begins if the document holds less of the log than was read: the crash was searched in all of it.
const SHORTENED: &str = "the first";

/// What is known of a crash from notes and log. What cannot be known is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and version that made it.
    pub extractor: String,
    /// Identifies the crash.
    #[serde(flatten)]
    pub id: CrashId,
    /// Seconds since 1970.
    pub crash_time: Option<u64>,
    /// Name of the host.
    pub host: Option<String>,
    /// Release of the kernel.
    pub release: Option<String>,
    /// `uname -v`.
    pub version: Option<String>,
    /// Build ID of the kernel.
    pub build_id: Option<String>,
    /// Architecture.
    pub arch: String,
    /// CPUs with registers in the notes.
    pub cpus: u32,
    /// Bytes of memory that the file describes, in whole pages: formats round ranges to pages.
    pub memory_bytes: u64,
    /// Bytes of a page.
    pub page_size: Option<u64>,
    /// The crash; null without one in the log, and if the log that could be read has none: [`Facts::read_whole_log`].
    pub crash: Option<Crash>,
    /// What is absent, and why.
    pub missing: Vec<Missing>,
    /// The log.
    pub log: Vec<LogRecord>,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Name of a field or table.
    pub what: String,
    /// A sentence.
    pub reason: String,
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// Its number since the machine started.
    pub seq: Option<u64>,
    /// Nanoseconds since the machine started.
    pub time_ns: u64,
    /// 0 emergency to 7 debug.
    pub level: u8,
    /// syslog's facility: 0 is the kernel.
    pub facility: u8,
    /// PID of the task that wrote it.
    pub task: Option<u32>,
    /// CPU that wrote it outside of any task.
    pub cpu: Option<u32>,
    /// The text.
    pub text: String,
}

impl Facts {
    /// Reads the facts of the kernel in `memory`. Always succeeds: a dump without a kernel has few.
    pub fn read(memory: &dyn PhysMemory, extractor: String) -> Self {
        let info = notes::vmcoreinfo(memory.notes()).map(|(_, text)| VmcoreInfo::parse(text));
        let key = |name| info.as_ref().and_then(|info| info.get(name)).map(str::to_owned);
        let mut missing = Vec::new();
        let mut note = |what: &str, reason: String| missing.push(Missing { what: what.to_owned(), reason });
        if info.is_none() {
            note("release", "the notes hold no VMCOREINFO".into());
        }
        if is_damaged(memory.notes()) {
            note(
                "crash_id",
                "VMCOREINFO is damaged: the crash ID is not that of other dumps of the crash".into(),
            );
        }
        let log = KernelLog::read_unerased(memory).unwrap_or_else(|why| {
            note("log", why.to_string());
            KernelLog::default()
        });
        if log.damaged > 0 {
            note("log", format!("{} records are inconsistent or unreadable", log.damaged));
        }
        let names = AddressSpace::discover(memory).map_err(|why| why.to_string()).and_then(|space| {
            let names = space.new_utsname(memory)?;
            Ok(UtsNames::new(&names, space.release(), memory.notes())?)
        });
        let (host, version) = match names {
            Ok(UtsNames { host, version }) => {
                if host.is_none() {
                    note("host", "the name of the host is erased, or has no end".into());
                }
                (host, version)
            }
            Err(why) => {
                note("host", why);
                (None, None)
            }
        };
        let (records, skipped) = records(&log);
        if skipped > 0 {
            note(
                "log",
                format!(
                    "{SHORTENED} {skipped} records are missing: the log is longer than {} MiB",
                    MAX_LOG >> 20
                ),
            );
        }
        let lines = lines_of(&log);
        let number = |name| info.as_ref().and_then(|info| info.unsigned(name));
        Self {
            schema_version: SCHEMA_VERSION,
            extractor,
            id: crash_id(memory.notes(), &lines),
            crash_time: number("CRASHTIME"),
            // The kernel's name for a host without one.
            host: host.filter(|host| host != "(none)"),
            release: key("OSRELEASE"),
            version,
            build_id: key("BUILD-ID"),
            arch: memory.platform().name().to_owned(),
            cpus: notes::cpu_count(memory.notes()),
            memory_bytes: pages(memory) << PAGE_SHIFT,
            page_size: number("PAGESIZE"),
            crash: Crash::find(&lines),
            missing,
            log: records,
        }
    }
}

impl Facts {
    /// Returns why other dumps of the crash have another ID, if what it is made of is damaged.
    pub fn damaged_id(&self) -> Option<&Missing> {
        self.missing.iter().find(|missing| missing.what == "crash_id")
    }

    /// Returns whether the whole log was read. Else no crash in it says nothing.
    pub fn read_whole_log(&self) -> bool {
        self.missing.iter().all(|missing| missing.what != "log" || missing.reason.starts_with(SHORTENED))
    }
}

/// Pages that the ranges of memory touch. Neighbours can share one.
fn pages(memory: &dyn PhysMemory) -> u64 {
    let (mut pages, mut end) = (0, 0);
    for piece in memory.ranges().pieces() {
        let (first, after) = ((piece.start >> PAGE_SHIFT).max(end), piece.end.div_ceil(1 << PAGE_SHIFT));
        pages += after.saturating_sub(first);
        end = end.max(after);
    }
    pages
}

/// The last records of the log, and how many are left out.
fn records(log: &KernelLog) -> (Vec<LogRecord>, usize) {
    let mut left = MAX_LOG;
    let kept = log.records.iter().rev().take_while(|record| {
        let fits = record.text.len() <= left;
        left = left.saturating_sub(record.text.len());
        fits
    });
    let count = kept.count();
    let skipped = log.records.len() - count;
    let records = log.records.iter().skip(skipped).map(|record| LogRecord {
        seq: record.sequence,
        time_ns: record.nanoseconds,
        level: record.level,
        facility: record.facility,
        task: if let Some(Caller::Task(pid)) = record.caller { Some(pid) } else { None },
        cpu: if let Some(Caller::Cpu(number)) = record.caller { Some(number) } else { None },
        text: record.text.clone(),
    });
    (records.collect(), skipped)
}
