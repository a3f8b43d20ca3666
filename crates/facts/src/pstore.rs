//! The end of the log that a kernel left in pstore: records of ramoops, EFI variables and other backends, as files of /sys/fs/pstore or
//! as systemd-pstore keeps them.

use pagehaul_codec::inflate;
use pagehaul_kernel::Caller;

use crate::crash::Crash;
use crate::document::{Facts, LogRecord, Missing, SCHEMA_VERSION};
use crate::identity::crash_id;
use crate::line::Line;
use crate::line::line_of_text;

/// Reasons that begin a record (`kmsg_dump_reason_str`, kernel/printk/printk.c).
const REASONS: [&str; 5] = ["Panic", "Oops", "Emergency", "Shutdown", "Unknown"];
/// Bytes of a record that was compressed: the kernel's buffer has 64 KiB by default, and 1 MiB at most of any log.
const MAX_INFLATED: usize = 1 << 20;
/// Bytes of all records of a crash.
const MAX_BYTES: usize = 8 << 20;

/// Why files are no records of a crash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PstoreError {
    /// None of them is one.
    #[error(
        "expected records of a kernel log in pstore, each of which begins with a line such as `Panic#1 Part1`"
    )]
    NoRecord,
    /// There are two of one part.
    #[error("part {part} of {reason}#{count} is there twice: name the records of one crash")]
    Twice {
        /// Why it was written.
        reason: &'static str,
        /// Which crash of the boot it is.
        count: u32,
        /// Number of the part, 1 for the end of the log.
        part: u32,
    },
    /// They are too large.
    #[error("the records have more than {} MiB", MAX_BYTES >> 20)]
    TooLong,
}

/// A part of the log (`pstore_dump`, fs/pstore/platform.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Header {
    /// Index in [`REASONS`].
    reason: usize,
    count: u32,
    part: u32,
}

/// Returns the header that a line is: `Panic#1 Part2`.
fn header(line: &str) -> Option<Header> {
    let (reason, rest) = line.split_once('#')?;
    let (count, part) = rest.split_once(" Part")?;
    let reason = REASONS.iter().position(|known| *known == reason)?;
    Some(Header { reason, count: count.parse().ok()?, part: part.parse().ok()? })
}

/// Returns whether a file with these first bytes is a record of a kernel log. One that the kernel could not decompress
/// (`dmesg-ramoops-0.enc.z`) is not recognized by them.
pub fn is_pstore(start: &[u8]) -> bool {
    let mut lines =
        start.split(|byte| *byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default());
    let first = lines.next().unwrap_or_default();
    header(first).is_some() || is_name(first) && lines.next().is_some_and(|line| header(line).is_some())
}

/// Returns whether a line names the record that follows, as systemd-pstore 252 has it in the file of all records.
fn is_name(line: &str) -> bool {
    line.starts_with("dmesg-") && line.ends_with(':') && !line.contains(' ')
}

/// Returns how many blocks of a record were lost, if a line says so: ramoops with ECC ends each record with one
/// (`persistent_ram_ecc_string`, fs/pstore/ram_core.c), which later kernels begin with `ECC: `.
fn lost_blocks(line: &str) -> Option<u32> {
    let line = line.strip_prefix("ECC: ").unwrap_or(line);
    if line == "No errors detected" {
        return Some(0);
    }
    let (corrected, rest) = line.split_once(" Corrected bytes, ")?;
    corrected.parse::<u32>().ok()?;
    rest.strip_suffix(" unrecoverable blocks")?.parse().ok()
}

/// Returns how many blocks were lost of a record that the kernel did not decompress, by the line at its end.
fn lost_blocks_at_end(record: &[u8]) -> u32 {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let line = record.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).ok().and_then(lost_blocks).unwrap_or(0)
}

/// The parts of one crash, in order of the log.
fn text_of(files: &[Vec<u8>]) -> Result<Records, PstoreError> {
    let mut parts: Vec<(Header, String)> = Vec::new();
    let mut left_out = Vec::new();
    let (mut bytes, mut lost) = (0, 0_u32);
    for (index, file) in files.iter().enumerate() {
        let inflated = if is_pstore(file) { None } else { inflate(file, MAX_INFLATED) };
        if inflated.is_some() {
            lost = lost.saturating_add(lost_blocks_at_end(file));
        }
        let text = String::from_utf8_lossy(inflated.as_deref().unwrap_or(file));
        bytes += text.len();
        if bytes > MAX_BYTES {
            return Err(PstoreError::TooLong);
        }
        let before = parts.len();
        // systemd-pstore keeps all parts in one file.
        for line in text.lines() {
            if let Some(header) = header(line) {
                parts.push((header, String::new()));
            } else if let Some(blocks) = lost_blocks(line) {
                lost = lost.saturating_add(blocks);
            } else if line.is_empty() || is_name(line) {
                // Each line of the log has at least its level.
            } else if let Some((_, part)) = parts.get_mut(before..).and_then(<[_]>::last_mut) {
                part.push_str(line);
                part.push('\n');
            }
        }
        if parts.len() == before {
            left_out.push(format!("file {} is damaged, or no record", index + 1));
        }
    }
    if lost > 0 {
        left_out.push(format!("the memory of the records was damaged: {lost} blocks could not be corrected"));
    }
    // A panic says more than the oops before it, whose lines it has, too.
    let best = parts
        .iter()
        .map(|(header, _)| *header)
        .min_by_key(|header| (header.reason, std::cmp::Reverse(header.count)));
    let best = best.ok_or(PstoreError::NoRecord)?;
    for (other, _) in &parts {
        let reason = REASONS.get(other.reason).copied().unwrap_or_default();
        let why = format!("the records of {reason}#{} are left out: they are of another event", other.count);
        if (other.reason, other.count) != (best.reason, best.count) && !left_out.contains(&why) {
            left_out.push(why);
        }
    }
    parts.retain(|(header, _)| (header.reason, header.count) == (best.reason, best.count));
    // The first part has the end of the log.
    parts.sort_by_key(|(header, _)| std::cmp::Reverse(header.part));
    if let Some(pair) = parts.windows(2).find(|pair| matches!(pair, [one, next] if one.0 == next.0)) {
        let part = pair.first().map_or(0, |(header, _)| header.part);
        let reason = REASONS.get(best.reason).copied().unwrap_or_default();
        return Err(PstoreError::Twice { reason, count: best.count, part });
    }
    if parts.windows(2).any(|pair| matches!(pair, [(_, one), (_, next)] if last_time(one) > first_time(next)))
    {
        left_out
            .push("the times of the parts go back: they are of different boots, or a part is damaged".into());
    }
    Ok(Records { parts: parts.into_iter().map(|(header, text)| (header.part, text)).collect(), left_out })
}

/// The records of one event.
struct Records {
    /// Number and text of the parts, in order of the log.
    parts: Vec<(u32, String)>,
    /// What is wrong with others, or with these.
    left_out: Vec<String>,
}

/// The time of the first line of a part that is whole: a part may begin within a line.
fn first_time(text: &str) -> u64 {
    text.lines().find(|line| line.starts_with('<')).map_or(u64::MAX, |line| record(line).1.nanoseconds)
}

fn last_time(text: &str) -> u64 {
    text.lines().rfind(|line| line.starts_with('<')).map_or(0, |line| record(line).1.nanoseconds)
}

impl Facts {
    /// Reads the facts of a crash from its records in pstore, in any order: kind, signature and what else the end of the log has.
    ///
    /// # Errors
    /// [`PstoreError`] if they are not of one crash.
    pub fn from_pstore(files: &[Vec<u8>], extractor: String) -> Result<Self, PstoreError> {
        let Records { parts, left_out } = text_of(files)?;
        let absent = |what: &str, reason: &str| Missing { what: what.into(), reason: reason.into() };
        let mut missing = vec![
            absent("log", "pstore has only the end of the log"),
            absent("host", "pstore has no name of the host"),
            absent(
                "crash_id",
                "pstore has neither VMCOREINFO nor registers: the ID is not that of a dump of the crash",
            ),
        ];
        missing.extend(left_out.iter().map(|why| absent("log", why)));
        let numbers: Vec<u32> = parts.iter().map(|(part, _)| *part).collect();
        if let Some(lacking) = (1..=numbers.len() as u32).find(|part| !numbers.contains(part)) {
            missing.push(absent("log", &format!("part {lacking} is missing")));
        }
        let text: String = parts.into_iter().map(|(_, text)| text).collect();
        let records: Vec<(u32, Line<'_>)> = text.lines().map(record).collect();
        // What programs wrote to /dev/kmsg cannot pass for a crash.
        let lines: Vec<Line<'_>> =
            records.iter().filter(|(priority, _)| priority >> 3 == 0).map(|(_, line)| *line).collect();
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            extractor,
            id: crash_id(&[], &lines),
            crash_time: None,
            host: None,
            release: lines.iter().find_map(|line| release(line.text)),
            version: None,
            build_id: None,
            arch: "unknown".into(),
            cpus: 0,
            memory_bytes: 0,
            page_size: None,
            crash: Crash::find(&lines),
            missing,
            log: records.iter().map(log_record).collect(),
        })
    }
}

/// Returns priority and rest of a line: `<4>[    1.234567] text`.
fn record(line: &str) -> (u32, Line<'_>) {
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

/// Returns the release in the first line of a trace: `CPU: 0 PID: 1 Comm: sh Not tainted 6.12.1 #1 Debian 6.12.1-1`
/// (`dump_stack_print_info`, lib/dump_stack.c).
fn release(text: &str) -> Option<String> {
    let (_, rest) = text.strip_prefix("CPU: ")?.split_once("ainted")?;
    let (before, _) = rest.split_once(" #")?;
    let release = before.rsplit(' ').next()?;
    release.starts_with(|first: char| first.is_ascii_digit()).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(files: &[&str]) -> Result<Facts, PstoreError> {
        let files: Vec<Vec<u8>> = files.iter().map(|file| file.as_bytes().to_vec()).collect();
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
        assert!(mixed.missing.iter().any(|missing| missing.reason.contains("different boots")));
    }

    #[test]
    fn what_is_missing_or_another_is_told() {
        let part = |number: u32| format!("Panic#2 Part{number}\n<6>[    1.000000] x\n");
        let lacking = facts(&[&part(3), &part(1)]).unwrap();
        assert!(lacking.missing.iter().any(|missing| missing.reason == "part 2 is missing"));
        let twice = facts(&[&part(1), &part(1)]).unwrap_err();
        assert_eq!(twice, PstoreError::Twice { reason: "Panic", count: 2, part: 1 });
        let damaged = facts(&[&part(1), "dmesg"]).unwrap();
        assert!(damaged.missing.iter().any(|missing| missing.reason.starts_with("file 2 is damaged")));
        assert_eq!(facts(&["dmesg"]).unwrap_err(), PstoreError::NoRecord);
        assert!(facts(&[]).is_err());
        assert!(is_pstore(b"Panic#1 Part1\n<") && is_pstore(b"Oops#12 Part7"));
        assert!(!is_pstore(b"Panic#1\n") && !is_pstore(b"\xff#1 Part1\n") && !is_pstore(b""));
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
        assert!(!is_pstore(b"dmesg-a-1:\nother\n") && !is_pstore(b"dmesg-a-1:\n"));
        // One of the log that says the same has a level.
        assert_eq!(facts(&["Panic#1 Part1\n<6>No errors detected\n"]).unwrap().log.len(), 1);
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
        assert_eq!(Facts::from_pstore(&[record.clone()], "test".into()).unwrap(), plain);
        record.extend(b"\nECC: No errors detected\n");
        assert_eq!(Facts::from_pstore(&[record.clone()], "test".into()).unwrap(), plain);
        let end = record.len() - "ECC: No errors detected\n".len();
        record.truncate(end);
        record.extend(b"7 Corrected bytes, 1 unrecoverable blocks\n");
        let damaged = Facts::from_pstore(&[record], "test".into()).unwrap();
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
    }
}
