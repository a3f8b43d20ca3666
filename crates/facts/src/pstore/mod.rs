//! The end of the log that a kernel left in pstore: records of ramoops, EFI variables and other backends, as files of /sys/fs/pstore or
//! as systemd-pstore keeps them.

mod boots;
mod record;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use pagehaul_kernel::Caller;

pub use self::record::is_pstore;
use self::record::{File, Part, may_be_compressed};
use crate::crash::Crash;
use crate::document::{Facts, LogRecord, Missing, SCHEMA_VERSION};
use crate::event::PANIC;
use crate::identity::id_of_records;
use crate::line::{Line, line_of_text, time_of_text};

/// Bytes of all records of a crash.
const MAX_BYTES: usize = 8 << 20;
/// Files that a remark names, and ranges of parts.
const NAMED: usize = 10;
/// Why a file that is not text is left out.
const OTHERWISE_COMPRESSED: &str = "it is damaged, no record, or not compressed by DEFLATE: LZO, LZ4, 842 and zstd, which kernels before \
                                    6.6 could use, are not read";

/// Why files are no records of a crash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PstoreError {
    /// None of them is one.
    #[error(
        "expected records of a kernel log in pstore, each of which begins with a line such as `Panic#1 Part1`"
    )]
    NoRecord,
    /// No file is a record, and at least one is not text.
    #[error("{OTHERWISE_COMPRESSED}")]
    Compressed,
    /// There are two of one part.
    #[error("part {part} of {reason}#{count} is there twice, with other text: name the records of one crash")]
    Twice {
        /// Why it was written.
        reason: &'static str,
        /// Which crash of the boot it is.
        count: u32,
        /// Number of the part, 1 for the end of the log.
        part: u32,
        /// The files that have it.
        files: [usize; 2],
    },
    /// They are too large.
    #[error("the records have more than {} MiB: name the records of one crash", MAX_BYTES >> 20)]
    TooLong,
}

/// A file of pstore.
#[derive(Debug, Clone)]
pub struct PstoreFile {
    /// Its content.
    pub bytes: Vec<u8>,
    /// When it was written, in seconds since 1970.
    pub written: Option<u64>,
}

impl From<Vec<u8>> for PstoreFile {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, written: None }
    }
}

/// What is to be said of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Their numbers, from 0; none if it is of all records.
    pub files: Vec<usize>,
    /// What of them.
    pub what: String,
    /// The file whose name ends the sentence.
    pub other: Option<usize>,
}

impl Remark {
    fn new(files: Vec<usize>, what: impl Into<String>) -> Self {
        Self { files, what: what.into(), other: None }
    }

    /// Returns the sentence, with the name of each file.
    pub fn sentence(&self, name: impl Fn(usize) -> String) -> String {
        let mut names: Vec<String> = self.files.iter().take(NAMED).map(|file| name(*file)).collect();
        if let more @ 1.. = self.files.len().saturating_sub(NAMED) {
            names.push(format!("{more} more"));
        }
        let mut sentence = names.join(", ");
        if !names.is_empty() {
            sentence += ": ";
        }
        sentence += &self.what;
        if let Some(other) = self.other {
            sentence += &format!(" {}", name(other));
        }
        sentence
    }

    /// Returns the sentence where files have no names.
    fn numbered(&self) -> String {
        self.sentence(|file| format!("file {}", file + 1))
    }
}

/// What the records of a crash have.
#[derive(Debug, Clone, PartialEq)]
pub struct PstoreRecords {
    /// The facts. What is missing of all crashes in pstore comes first in `missing`, then what is in `faults` and `left_out`.
    pub facts: Facts,
    /// Number of entries in `missing` that hold for all crashes in pstore.
    pub of_all: usize,
    /// The files that were read, in order of the log.
    pub files: Vec<usize>,
    /// If they have no crash, why it is not known what happened. `None` if they show that there was no crash.
    pub unknown: Option<String>,
    /// What is missing of the records: they are incomplete.
    pub faults: Vec<Remark>,
    /// Records that were left out, because they are of other events, and doubts about those that were not.
    pub left_out: Vec<Remark>,
}

/// The parts of one crash, in order of the log.
fn chosen(files: &[PstoreFile]) -> Result<Chosen, PstoreError> {
    let (mut parts, mut faults, mut bytes) = (Vec::new(), Vec::new(), 0);
    let (mut lost, mut of_files) = (Vec::new(), Vec::new());
    for (number, file) in files.iter().enumerate() {
        let mut read = File::read(&file.bytes, number);
        bytes += read.bytes;
        if bytes > MAX_BYTES {
            return Err(PstoreError::TooLong);
        }
        if read.parts.is_empty() {
            let what = match may_be_compressed(&file.bytes) {
                true => OTHERWISE_COMPRESSED,
                false => "it is damaged, or no record",
            };
            faults.push(Remark::new(vec![number], what));
        }
        lost.push(read.lost_blocks);
        of_files.push(read.fault);
        read.parts.iter_mut().for_each(|part| part.release = release_of(&part.text));
        parts.extend(read.parts);
    }
    if parts.is_empty() && files.iter().any(|file| may_be_compressed(&file.bytes)) {
        return Err(PstoreError::Compressed);
    }
    let times: Vec<Option<u64>> = files.iter().map(|file| file.written).collect();
    let (parts, without_line) = with_lines(parts);
    faults.extend(without_line);
    let boots::Choice { parts, faults: without_crash, left_out } = boots::choose(parts, &times)?;
    faults.extend(without_crash);
    let used: HashSet<usize> = parts.iter().map(|part| part.file).collect();
    let is_used = |file: &usize| used.contains(file);
    let mut cut: Vec<usize> =
        parts.iter().filter(|part| part.is_cut && !part.text.is_empty()).map(|part| part.file).collect();
    cut.sort_unstable();
    cut.dedup();
    // What they say is more.
    cut.retain(|file| !matches!(of_files.get(*file), Some(Some(_))));
    for (file, what) in of_files.into_iter().enumerate().filter(|(file, _)| is_used(file)) {
        faults.extend(what.map(|what| Remark::new(vec![file], what)));
    }
    if !cut.is_empty() {
        let what = match cut[..] {
            [_] => "it is cut: what followed its last line is missing",
            _ => "they are cut: what followed their last lines is missing",
        };
        faults.push(Remark::new(cut, what));
    }
    let mut odd: BTreeMap<usize, usize> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.odd_lines > 0) {
        *odd.entry(part.file).or_default() += part.odd_lines;
    }
    for (file, lines) in odd {
        let what = match lines {
            1 => "a line of it has no level, or bytes that are no text: it is damaged".to_owned(),
            _ => format!("{lines} of its lines have no level, or bytes that are no text: it is damaged"),
        };
        faults.push(Remark::new(vec![file], what));
    }
    for (file, blocks) in lost.into_iter().enumerate().filter(|(file, blocks)| *blocks > 0 && is_used(file)) {
        let what = format!("its memory was damaged: {blocks} blocks could not be corrected");
        faults.push(Remark::new(vec![file], what));
    }
    faults.extend(lacking(&parts).map(|what| Remark::new(Vec::new(), what)));
    Ok(Chosen { parts, faults, left_out })
}

/// Returns the parts that have lines, or all if none has, and what is to be said of the others.
fn with_lines(parts: Vec<Part>) -> (Vec<Part>, Vec<Remark>) {
    let (empty, parts): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.text.is_empty());
    let with_lines: HashSet<usize> = parts.iter().map(|part| part.file).collect();
    let mut of_empty: Vec<usize> = empty.iter().map(|part| part.file).collect();
    of_empty.sort_unstable();
    of_empty.dedup();
    let (partly, wholly): (Vec<usize>, Vec<usize>) =
        of_empty.into_iter().partition(|file| with_lines.contains(file));
    let mut remarks = Vec::new();
    if !wholly.is_empty() {
        let what =
            if wholly.len() == 1 { "it has no line of the log" } else { "they have no line of the log" };
        remarks.push(Remark::new(wholly, what));
    }
    if !partly.is_empty() {
        remarks.push(Remark::new(partly, "of a part, only the header is there"));
    }
    (if parts.is_empty() { empty } else { parts }, remarks)
}

/// Returns a sentence if parts are missing between the others, which are in order of the log, or after them.
fn lacking(parts: &[Part]) -> Option<String> {
    let (mut ranges, mut next) = (Vec::new(), 1);
    for part in parts.iter().rev() {
        match part.number.saturating_sub(next) {
            0 => {}
            1 => ranges.push(next.to_string()),
            _ => ranges.push(format!("{next} to {}", part.number - 1)),
        }
        next = part.number.saturating_add(1);
    }
    let is_one = matches!(&ranges[..], [range] if !range.contains(' '));
    let more = ranges.len().saturating_sub(NAMED);
    ranges.truncate(NAMED);
    let mut what = match is_one {
        true => "part ".to_owned(),
        false => "parts ".to_owned(),
    };
    what += &ranges.join(", ");
    if more > 0 {
        let _ = write!(what, " and more");
    }
    what += if is_one { " is missing" } else { " are missing" };
    if parts.last().is_some_and(|part| part.number > 1) {
        what += ", and with part 1 the end of the log";
    }
    (!ranges.is_empty()).then_some(what)
}

/// The records of one event.
struct Chosen {
    /// In order of the log.
    parts: Vec<Part>,
    faults: Vec<Remark>,
    left_out: Vec<Remark>,
}

/// The times of the lines of a part that are whole: it may begin within a line, or be cut in one.
fn times(text: &str) -> impl DoubleEndedIterator<Item = u64> {
    let whole = text.split_inclusive('\n').filter(|line| line.starts_with('<') && line.ends_with('\n'));
    whole.filter_map(time_of_text)
}

fn first_time(text: &str) -> u64 {
    times(text).next().unwrap_or(u64::MAX)
}

fn last_time(text: &str) -> u64 {
    times(text).next_back().unwrap_or(0)
}

impl Facts {
    /// Reads the facts of a crash from its records in pstore, in any order: kind, signature and what else the end of the log has. Of
    /// several crashes, the newest.
    ///
    /// # Errors
    /// [`PstoreError`] if they are no records, or those of several crashes that cannot be told apart.
    pub fn from_pstore(files: &[PstoreFile], extractor: String) -> Result<PstoreRecords, PstoreError> {
        let Chosen { parts, mut faults, mut left_out } = chosen(files)?;
        let absent = |what: &str, reason: &str| Missing { what: what.into(), reason: reason.into() };
        let mut missing = vec![
            absent("log", "pstore has only the end of the log"),
            absent("host", "pstore has no name of the host"),
            absent(
                "crash_id",
                "pstore has neither VMCOREINFO nor registers: the ID is not that of a dump of the crash",
            ),
        ];
        let of_all = missing.len();
        let text = text_of(&parts);
        let records: Vec<(u32, Line<'_>)> = text.lines().map(priority_and_line).collect();
        let lines = kernel_lines(&records);
        let crash = Crash::find(&lines);
        let has_panic = lines.iter().any(|line| line.text.starts_with(PANIC));
        let unknown = remark_on_crash(&parts, crash.is_some(), has_panic, &mut faults, &mut left_out);
        missing.extend(faults.iter().chain(&left_out).map(|remark| absent("log", &remark.numbered())));
        let mut files: Vec<usize> = parts.iter().map(|part| part.file).collect();
        files.dedup();
        let facts = Self {
            schema_version: SCHEMA_VERSION,
            extractor,
            id: id_of_records(records.iter().map(|(_, line)| line)),
            crash_time: None,
            host: None,
            release: lines.iter().find_map(|line| release(line.text)),
            version: None,
            build_id: None,
            arch: "unknown".into(),
            cpus: 0,
            memory_bytes: 0,
            page_size: None,
            crash,
            missing,
            log: records.iter().map(log_record).collect(),
        };
        Ok(PstoreRecords { facts, of_all, files, unknown, faults, left_out })
    }
}

/// Returns the log that parts in order of the log have.
fn text_of(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        text += &part.text;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// Returns the lines of the kernel: what programs wrote to /dev/kmsg cannot pass for a crash.
fn kernel_lines<'a>(records: &[(u32, Line<'a>)]) -> Vec<Line<'a>> {
    records.iter().filter(|(priority, _)| priority >> 3 == 0).map(|(_, line)| *line).collect()
}

/// Returns the crash in the log that parts have.
fn crash_of(parts: &[Part]) -> Option<Crash> {
    let text = text_of(parts);
    let records: Vec<(u32, Line<'_>)> = text.lines().map(priority_and_line).collect();
    Crash::find(&kernel_lines(&records))
}

/// Adds what is to be said of records that lack lines of the crash after which they were written. Returns why it is not known what
/// happened, if they have no crash, and do not show either that there was none.
fn remark_on_crash(
    parts: &[Part],
    has_crash: bool,
    has_panic: bool,
    faults: &mut Vec<Remark>,
    left_out: &mut Vec<Remark>,
) -> Option<String> {
    let last = parts.last()?;
    let event = last.event;
    let has_end = last.number == 1 && !last.is_cut && !last.text.is_empty();
    // An oops in the log does not show that the panic is there. The lines of a panic may have been pushed out by stacks of all CPUs, which
    // follow them. Other faults say it of records without their end.
    let lacks_crash = if event.is_panic() { !has_panic } else { event.is_crash() && !has_crash };
    if let Some(of) = event.crash().filter(|_| lacks_crash && has_end) {
        let line = if has_crash { "line `Kernel panic`" } else { "line of it" };
        let what = match parts.len() {
            1 => format!("the record is of {of}, but has no {line}: lines are missing or damaged"),
            _ => format!("the records are of {of}, but have no {line}: lines are missing or damaged"),
        };
        faults.push(Remark::new(Vec::new(), what.clone()));
        return (!has_crash).then_some(what);
    }
    if has_crash {
        return None;
    }
    if !has_end {
        return Some("the end of the log, in part 1, is missing".to_owned());
    }
    if !faults.is_empty() {
        return Some("the records are incomplete, and what is there has no crash".to_owned());
    }
    if event.is_orderly() {
        return None;
    }
    let what = format!("{event} can be of a crash or not, and has no line of one");
    left_out.push(Remark::new(Vec::new(), &*what));
    Some(what)
}

/// Returns priority and rest of a line: `<4>[    1.234567] text`.
fn priority_and_line(line: &str) -> (u32, Line<'_>) {
    let priority = line.strip_prefix('<').and_then(|rest| rest.split_once('>')?.0.parse().ok());
    (priority.unwrap_or(6), line_of_text(line))
}

fn log_record((priority, line): &(u32, Line<'_>)) -> LogRecord {
    LogRecord {
        seq: None,
        time_ns: line.nanoseconds,
        level: (priority & 7) as u8,
        facility: (priority >> 3).min(255) as u8,
        task: if let Some(Caller::Task(pid)) = line.caller { Some(pid) } else { None },
        cpu: if let Some(Caller::Cpu(number)) = line.caller { Some(number) } else { None },
        text: line.text.to_owned(),
    }
}

/// Returns the release of the kernel that wrote a part.
fn release_of(text: &str) -> Option<String> {
    let lines = text.lines().map(priority_and_line).filter(|(priority, _)| priority >> 3 == 0);
    lines.map(|(_, line)| line.text).find_map(release)
}

/// Returns the release in the first line of a log, `Linux version 6.12.1 (…`, or of a trace:
/// `CPU: 0 PID: 1 Comm: sh Not tainted 6.12.1 #1 Debian 6.12.1-1` (`dump_stack_print_info`, lib/dump_stack.c).
fn release(text: &str) -> Option<String> {
    let release = match text.strip_prefix("Linux version ") {
        Some(rest) => rest.split(' ').next()?,
        None => {
            let (_, rest) = text.strip_prefix("CPU: ")?.split_once("ainted")?;
            rest.split_once(" #")?.0.rsplit(' ').next()?
        }
    };
    release.starts_with(|first: char| first.is_ascii_digit()).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(files: &[&str]) -> Result<Facts, PstoreError> {
        let files: Vec<Vec<u8>> = files.iter().map(|file| file.as_bytes().to_vec()).collect();
        Ok(read(&files)?.facts)
    }

    fn read(files: &[Vec<u8>]) -> Result<PstoreRecords, PstoreError> {
        let files: Vec<PstoreFile> = files.iter().map(|file| file.clone().into()).collect();
        Facts::from_pstore(&files, "test".into())
    }

    fn texts(facts: &Facts) -> Vec<&str> {
        facts.log.iter().map(|record| record.text.as_str()).collect()
    }

    #[test]
    fn parts_are_joined_in_order_of_the_log() {
        let last = "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: sysrq triggered crash\n";
        let first = "Panic#1 Part2\n<6>[    1.000000] one\n<12>[    2.000000] [  T7] by a program\n";
        let joined = facts(&[last, first]).unwrap();
        assert_eq!(
            texts(&joined),
            ["one", "by a program", "Kernel panic - not syncing: sysrq triggered crash"]
        );
        assert_eq!((joined.log[1].facility, joined.log[1].level, joined.log[1].task), (1, 4, Some(7)));
        assert!(joined.crash.is_some() && !joined.read_whole_log() && joined.id.id_weak);
        // One file, as of systemd-pstore; another order; an oops before it.
        let oops = "Oops#1 Part1\n<4>[    0.500000] before\n";
        let whole = format!("{first}{last}");
        for files in [&[whole.as_str()][..], &[first, last]] {
            assert_eq!(facts(files).unwrap(), joined);
        }
        let with_oops = facts(&[oops, first, last]).unwrap();
        assert_eq!((&with_oops.log, &with_oops.crash), (&joined.log, &joined.crash));
        assert!(with_oops.missing.iter().any(|missing| missing.reason.contains("of Oops#1 are left out")));
        let later = first.replace("1.000000", "7.000000").replace("2.000000", "9.000000");
        let mixed = facts(&[&later, last]).unwrap();
        let reason = "file 1: the records of Panic#1 are left out: they are of another boot";
        assert!(mixed.missing.iter().any(|missing| missing.reason == reason));
        assert_eq!(texts(&mixed), ["Kernel panic - not syncing: sysrq triggered crash"]);
    }

    #[test]
    fn what_is_missing_or_another_is_told() {
        let part = |number: u32| format!("Panic#2 Part{number}\n<6>[    1.000000] x\n");
        let lacking = facts(&[&part(3), &part(1)]).unwrap();
        assert!(lacking.missing.iter().any(|missing| missing.reason == "part 2 is missing"));
        let lacking = facts(&[&part(9), &part(4), &part(2), &part(4_000_000_000)]).unwrap();
        let all = "parts 1, 3, 5 to 8, 10 to 3999999999 are missing, and with part 1 the end of the log";
        assert!(lacking.missing.iter().any(|missing| missing.reason == all), "{:?}", lacking.missing);
        let other = part(1).replace('x', "y");
        let twice = facts(&[&part(1), &part(1), &other]).unwrap_err();
        assert_eq!(twice, PstoreError::Twice { reason: "Panic", count: 2, part: 1, files: [0, 2] });
        assert_eq!(facts(&[&part(1), &part(1)]), facts(&[&part(1)]));
        let damaged = facts(&[&part(1), "dmesg"]).unwrap();
        assert!(damaged.missing.iter().any(|missing| missing.reason.starts_with("file 2: it is damaged")));
        assert_eq!(facts(&["dmesg"]).unwrap_err(), PstoreError::NoRecord);
        assert!(facts(&[]).is_err());
    }

    #[test]
    fn a_record_without_a_line_is_a_fault() {
        let [two, one] =
            [2, 1].map(|number| format!("Panic#1 Part{number}\n<0>[    {}.000000] {PANIC}x\n", 9 - number));
        let file = |text: &str, written| PstoreFile { bytes: text.into(), written: Some(written) };
        for empty in ["Panic#1 Part1\n", "Panic#1 Part1"] {
            let faults = |files: &[PstoreFile]| {
                let records = Facts::from_pstore(files, "test".into()).unwrap();
                assert!(records.left_out.is_empty());
                (records.faults.iter().map(Remark::numbered).collect::<Vec<_>>(), records.facts.log.len())
            };
            let found = faults(&[file(&two, 1), file(&one, 1), file(empty, 21)]);
            assert_eq!(found, (vec!["file 3: it has no line of the log".into()], 2));
            assert_eq!(faults(&[file(empty, 1)]), (vec!["file 1: it has no line of the log".into()], 0));
            let found = faults(&[file(&two, 1), file(empty, 1)]);
            let end = "part 1 is missing, and with part 1 the end of the log";
            assert_eq!(found, (vec!["file 2: it has no line of the log".into(), end.into()], 1));
            let found = faults(&[file(&format!("{two}{one}{empty}"), 1)]);
            assert_eq!(found, (vec!["file 1: of a part, only the header is there".into()], 2));
        }
    }

    #[test]
    fn only_a_whole_record_of_an_orderly_end_shows_that_there_was_no_crash() {
        let found = |file: &str| {
            let records = read(&[file.into()]).unwrap();
            assert!(records.facts.crash.is_none());
            let faults: Vec<String> = records.faults.iter().map(Remark::numbered).collect();
            assert!(
                faults
                    .iter()
                    .all(|fault| { records.facts.missing.iter().any(|missing| missing.reason == *fault) })
            );
            (records.unknown.unwrap_or_default(), faults)
        };
        for event in ["Shutdown#1", "Restart#1", "Halt#1", "Poweroff#1"] {
            assert_eq!(found(&format!("{event} Part1\n<6>x\n")), (String::new(), Vec::new()));
        }
        let end = "the end of the log, in part 1, is missing";
        for file in
            ["Panic#1 Part2\n<6>x\n", "Panic#1 Part1\n<6>x", "Panic#1 Part1\n", "Halt#1 Part2\n<6>x\n"]
        {
            let (why, faults) = found(file);
            assert!(why == end && faults.len() == 1, "{file}: {faults:?}");
        }
        // Lines of the kernel that are whole, but none of the crash; those of programs do not count.
        let is_of =
            |of: &str| format!("the record is of {of}, but has no line of it: lines are missing or damaged");
        for (event, of) in [("Panic#1", "a panic"), ("Oops#7", "an oops")] {
            for text in
                ["<6>x\n", "<8>Kernel panic - not syncing: x\n", "<0>Kernel pa\u{1}ic - not syncing: x\n"]
            {
                let expected = is_of(of);
                assert_eq!(found(&format!("{event} Part1\n{text}")), (expected.clone(), vec![expected]));
            }
        }
        let (why, faults) = found("Panic#1 Part2\n<6>x\nPanic#1 Part1\n<6>x\n");
        let all = "the records are of a panic, but have no line of it: lines are missing or damaged";
        assert_eq!((why.as_str(), faults), (all, vec![all.to_owned()]));
        // What is damaged may have been the crash.
        let (why, faults) = found("Halt#1 Part1\n<6>x\n\u{1}0>y\n");
        assert_eq!(why, "the records are incomplete, and what is there has no crash");
        assert_eq!(faults.len(), 1);
        // An emergency restart can be one by sysrq.
        let (why, faults) = found("Emergency#1 Part1\n<6>sysrq: Resetting\n");
        assert_eq!(why, "Emergency#1 can be of a crash or not, and has no line of one");
        assert_eq!(faults.len(), 0);
    }

    #[test]
    fn an_oops_does_not_show_that_the_panic_is_there() {
        let oops = "<1>[    5.000000] BUG: kernel NULL pointer dereference, address: 0000000000000008\n";
        let records = read(&[format!("Panic#2 Part1\n{oops}").into()]).unwrap();
        assert!(records.facts.crash.is_some() && records.unknown.is_none());
        let fault = "the record is of a panic, but has no line `Kernel panic`: lines are missing or damaged";
        assert_eq!(records.faults.iter().map(Remark::numbered).collect::<Vec<_>>(), [fault]);
        let whole =
            format!("Panic#2 Part1\n{oops}<0>[    5.100000] Kernel panic - not syncing: Fatal exception\n");
        assert_eq!(read(&[whole.into()]).unwrap().faults, []);
    }

    #[test]
    fn what_ramoops_and_systemd_add_is_not_of_the_log() {
        let first = "Panic#1 Part2\n<6>[    1.000000] one\n";
        let last = "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        let plain = facts(&[first, last]).unwrap();
        for notice in [
            "\nNo errors detected\n",
            "\nECC: No errors detected\n",
            "\n3 Corrected bytes, 0 unrecoverable blocks\n",
        ] {
            let with = |part: &str| format!("{part}{notice}");
            assert_eq!(facts(&[&with(first), &with(last)]).unwrap(), plain, "{notice}");
            let joined = format!("dmesg-a-2:\n{}dmesg-a-1:\n{}", with(first), with(last));
            assert!(is_pstore(joined.as_bytes()));
            assert_eq!(facts(&[&joined]).unwrap(), plain, "{notice}");
        }
        let damaged = format!("{last}\nECC: 0 Corrected bytes, 2 unrecoverable blocks\n");
        let damaged = facts(&[first, &damaged]).unwrap();
        assert_eq!(damaged.log, plain.log);
        assert!(damaged.missing.iter().any(|missing| missing.reason.contains(": 2 blocks could not be")));
        // One of the log that says the same has a level.
        assert_eq!(facts(&["Panic#1 Part1\n<6>No errors detected\n"]).unwrap().log.len(), 1);
    }

    #[test]
    fn damage_between_lines_is_told() {
        let faults = |text: &str| {
            let records = read(&[text.as_bytes().to_vec()]).unwrap();
            records.faults.iter().map(Remark::numbered).collect::<Vec<_>>()
        };
        let whole = "Panic#1 Part1\nof a line\n<6>[    1.000000] one\n<6>[    2.000000] \u{e9}\t\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        assert_eq!(faults(whole), Vec::<String>::new());
        // No level: by hand.
        assert_eq!(faults("Halt#1 Part1\n[    1.000000] one\n[    2.000000] two\n"), Vec::<String>::new());
        let one = "file 1: a line of it has no level, or bytes that are no text: it is damaged";
        for (from, to) in [("<6>[    2", "\u{7f}6>[    2"), ("\u{e9}", "\0"), ("\n<0>", "\n\u{1}0>")] {
            assert_eq!(faults(&whole.replace(from, to))[0], one, "{to:?}");
        }
        let mut bytes = whole.replace("one", "o\0e").into_bytes();
        let at = bytes.iter().position(|byte| *byte == 0xc3).unwrap();
        bytes[at] = 0x43;
        let records = read(&[bytes]).unwrap();
        assert_eq!(
            records.faults[0].numbered(),
            "file 1: 2 of its lines have no level, or bytes that are no text: it is damaged"
        );
        // What is there is explained.
        assert!(records.facts.crash.is_some());
    }

    #[test]
    fn records_that_another_compressor_made_are_told() {
        let end = b"Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        // The start of a frame of zstd, of a block of LZ4, and of one of LZO1X.
        for start in [&b"\x28\xb5\x2f\xfd\x60"[..], b"\xf0\x03Panic#2 Part1\n", b"\x1fPanic#2 Part1\n\0"] {
            let records = read(&[start.to_vec(), end.to_vec()]).unwrap();
            let faults: Vec<String> = records.faults.iter().map(Remark::numbered).collect();
            assert_eq!(faults, [format!("file 1: {OTHERWISE_COMPRESSED}")]);
            assert_eq!(read(&[start.to_vec()]).unwrap_err(), PstoreError::Compressed);
        }
    }

    #[test]
    fn a_record_that_was_not_decompressed_has_its_notice_outside() {
        let text = "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        // A stored block, as RFC 1951 has it.
        let length = u16::try_from(text.len()).unwrap();
        let mut record = vec![1];
        record.extend(length.to_le_bytes());
        record.extend((!length).to_le_bytes());
        record.extend(text.as_bytes());
        let plain = facts(&[text]).unwrap();
        assert_eq!(read(&[record.clone()]).unwrap().facts, plain);
        record.extend(b"\nECC: No errors detected\n");
        assert_eq!(read(&[record.clone()]).unwrap().facts, plain);
        let end = record.len() - "ECC: No errors detected\n".len();
        record.truncate(end);
        record.extend(b"7 Corrected bytes, 1 unrecoverable blocks\n");
        let damaged = read(&[record]).unwrap().facts;
        assert_eq!(damaged.log, plain.log);
        assert!(damaged.missing.iter().any(|missing| missing.reason.contains(": 1 blocks could not be")));
    }

    #[test]
    fn the_release_is_in_the_trace() {
        let release = |text| release(text).unwrap_or_default();
        assert_eq!(
            release("CPU: 1 UID: 0 PID: 1 Comm: a b Not tainted 6.12.1-amd64 #1 Debian"),
            "6.12.1-amd64"
        );
        assert_eq!(release("CPU: 1 PID: 1 Comm: sh Tainted: G           OE     5.10.0 #1"), "5.10.0");
        assert_eq!(release("CPU: 1 PID: 1 Comm: sh"), "");
        assert_eq!(release("Linux version 6.1.0-1-amd64 (x@y) (gcc)"), "6.1.0-1-amd64");
    }
}
