//! Files of pstore: the parts of a kernel log that they have.

use std::fmt;

use pagehaul_codec::{Ending, Start, inflate, inflate_start};

/// Reasons that begin a record (`kmsg_dump_reason_str`, kernel/printk/printk.c). 5.8 made `Shutdown` of `Restart`, `Halt` and `Poweroff`
/// (before, `get_reason_str` in fs/pstore/platform.c).
const REASONS: [&str; 8] =
    ["Panic", "Oops", "Emergency", "Shutdown", "Restart", "Halt", "Poweroff", "Unknown"];
/// Bytes of a record that was compressed: the kernel's buffer has 64 KiB by default, and 1 MiB at most of any log.
const MAX_INFLATED: usize = 1 << 20;

/// What editors on Windows put before a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The event that wrote a record: why, and which crash of the boot it was (`pstore_dump`, fs/pstore/platform.c). A panic says more than
/// the oops before it, whose lines it has, too: it is the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Event {
    /// Index in [`REASONS`].
    pub(super) reason: usize,
    pub(super) count: u32,
}

impl Event {
    pub(super) fn name_of_reason(self) -> &'static str {
        REASONS.get(self.reason).copied().unwrap_or_default()
    }

    pub(super) fn is_panic(self) -> bool {
        self.name_of_reason() == "Panic"
    }

    /// Whether the kernel writes such a record only after a crash: its log has lines of one.
    pub(super) fn is_crash(self) -> bool {
        self.crash().is_some()
    }

    /// What the kernel writes such a record after, if that is a crash.
    pub(super) fn crash(self) -> Option<&'static str> {
        match self.name_of_reason() {
            "Panic" => Some("a panic"),
            "Oops" => Some("an oops"),
            _ => None,
        }
    }

    /// Whether the kernel writes such a record only in an orderly end, without a crash.
    pub(super) fn is_orderly(self) -> bool {
        ["Shutdown", "Restart", "Halt", "Poweroff"].contains(&self.name_of_reason())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}#{}", self.name_of_reason(), self.count)
    }
}

/// The first line of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    event: Event,
    part: u32,
}

/// Returns the header that a line is: `Panic#1 Part2`.
fn header(line: &str) -> Option<Header> {
    let (reason, rest) = line.split_once('#')?;
    let (count, part) = rest.split_once(" Part")?;
    let reason = REASONS.iter().position(|known| *known == reason)?;
    Some(Header { event: Event { reason, count: count.parse().ok()? }, part: part.parse().ok()? })
}

/// Returns whether a file with these first bytes is a record of a kernel log. One that the kernel could not decompress
/// (`dmesg-ramoops-0.enc.z`) is not recognized by them. Lines may end as on Windows: records are copied, or sent by mail.
pub fn is_pstore(start: &[u8]) -> bool {
    let start = start.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(start);
    let mut lines = start
        .split(|byte| *byte == b'\n')
        .map(|line| std::str::from_utf8(line).unwrap_or_default().trim_end_matches('\r'));
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

/// Takes the line at the end of a record that the kernel did not decompress, and returns how many blocks were lost by it.
fn take_notice(record: &mut &[u8]) -> u32 {
    let without = record.strip_suffix(b"\n").unwrap_or(record);
    let start = without.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = std::str::from_utf8(without.get(start..).unwrap_or_default());
    let Some(blocks) = line.ok().and_then(lost_blocks) else { return 0 };
    *record = record.get(..start.saturating_sub(1)).unwrap_or_default();
    blocks
}

/// Decompresses a record that the kernel did not decompress. Of one that does not decompress to its end, the lines that are whole, and why
/// not.
fn decompressed(record: &[u8]) -> Option<(Vec<u8>, Option<Ending>)> {
    let mut starts = inflate_start(record, MAX_INFLATED).into_iter();
    let Some(Start { mut bytes, ending }) = starts.find(|start| is_pstore(&start.bytes)) else {
        return Some((inflate(record, MAX_INFLATED)?, None));
    };
    let end = bytes.iter().rposition(|byte| *byte == b'\n')?;
    bytes.truncate(end + 1);
    Some((bytes, Some(ending)))
}

/// A part of the log.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) event: Event,
    /// 1 for the end of the log.
    pub(super) number: u32,
    /// Its lines. One that is cut at the end does not end in `\n`.
    pub(super) text: String,
    /// Whether it ends too early: within a line, or where its compressed data ended early.
    pub(super) is_cut: bool,
    /// The file that it is in.
    pub(super) file: usize,
    /// Release of the kernel, if a line has it.
    pub(super) release: Option<String>,
    /// Lines that the kernel did not write so.
    pub(super) odd_lines: usize,
}

impl Part {
    /// Counts lines that the kernel does not write: those with bytes that are no text, and those without their level. The first may begin
    /// within a line. If none has a level, somebody took them off.
    fn count_odd_lines(&mut self) {
        let has_level = |line: &str| after_level(line).is_some();
        let levels = self.text.lines().any(has_level);
        let is_odd = |(number, line): (usize, &str)| {
            line.contains([char::REPLACEMENT_CHARACTER, '\0']) || levels && number > 0 && !has_level(line)
        };
        self.odd_lines = self.text.lines().enumerate().filter(|line| is_odd(*line)).count();
    }
}

/// Returns what follows the level of a line: `<4>`.
fn after_level(line: &str) -> Option<&str> {
    let (level, rest) = line.strip_prefix('<')?.split_once('>')?;
    level.parse::<u32>().is_ok().then_some(rest)
}

/// Returns whether a file that has no part has bytes that are no text, as one has that was compressed otherwise. Until 438b805003a0 (6.6)
/// a kernel could be configured to compress by LZO, LZ4, 842 or zstd.
pub(super) fn may_be_compressed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or(true, |text| text.contains('\0'))
}

/// What is in a file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) parts: Vec<Part>,
    /// Bytes of its text.
    pub(super) bytes: usize,
    /// Blocks that ECC could not correct.
    pub(super) lost_blocks: u32,
    /// Why it did not decompress to its end, unless it is cut.
    pub(super) fault: Option<String>,
}

impl File {
    /// Reads the file `number`.
    pub(super) fn read(bytes: &[u8], number: usize) -> Self {
        let mut this = Self::default();
        let mut record = bytes;
        let (mut inflated, mut ending) = (None, None);
        if !is_pstore(bytes) {
            let lost_blocks = take_notice(&mut record);
            if let Some(found) = decompressed(record) {
                this.lost_blocks = lost_blocks;
                (inflated, ending) = (Some(found.0), found.1);
            }
        }
        let text = String::from_utf8_lossy(inflated.as_deref().unwrap_or(bytes));
        this.bytes = text.len();
        let mut follows_line = false;
        // systemd-pstore keeps all parts in one file.
        let lines = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text).lines();
        for line in lines.map(|line| line.trim_end_matches('\r')) {
            if let Some(Header { event, part }) = header(line) {
                this.parts.push(Part {
                    event,
                    number: part,
                    text: String::new(),
                    is_cut: false,
                    file: number,
                    release: None,
                    odd_lines: 0,
                });
            } else if let Some(blocks) = lost_blocks(line) {
                this.lost_blocks = this.lost_blocks.saturating_add(blocks);
                // An empty line is between it and a whole record.
                if follows_line {
                    this.cut_line();
                }
            } else if line.is_empty() || is_name(line) {
                // Each line of the log has at least its level.
            } else if let Some(part) = this.parts.last_mut() {
                part.text.push_str(line);
                part.text.push('\n');
                follows_line = true;
                continue;
            }
            follows_line = false;
        }
        if !text.ends_with('\n') {
            this.cut_line();
        }
        if let Some(last) = this.parts.last_mut() {
            last.is_cut |= ending.is_some_and(|ending| ending != Ending::Checksum);
        }
        this.fault = match ending {
            None | Some(Ending::Cut) => None,
            Some(Ending::Damaged { read }) => {
                Some(format!("it is damaged: {read} of its {} bytes could be decompressed", record.len()))
            }
            Some(Ending::Checksum) => Some("it is damaged: its checksum is not that of its text".to_owned()),
            Some(Ending::TooLong) => Some(format!(
                "it decompresses to more than {} MiB, which is longer than any record: the rest is not read",
                MAX_INFLATED >> 20
            )),
        };
        this.parts.iter_mut().for_each(Part::count_odd_lines);
        this
    }

    /// Notes that the last part so far ends within a line.
    fn cut_line(&mut self) {
        if let Some(last) = self.parts.last_mut() {
            last.is_cut = true;
            last.text.truncate(last.text.trim_end_matches('\n').len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cut(file: &File) -> bool {
        file.parts.iter().any(|part| part.is_cut)
    }

    #[test]
    fn records_are_recognized_by_their_first_line() {
        assert!(is_pstore(b"Panic#1 Part1\n<") && is_pstore(b"Oops#12 Part7"));
        assert!(!is_pstore(b"Panic#1\n") && !is_pstore(b"\xff#1 Part1\n") && !is_pstore(b""));
        assert!(!is_pstore(b"dmesg-a-1:\nother\n") && !is_pstore(b"dmesg-a-1:\n"));
    }

    #[test]
    fn compressed_records_that_are_cut_keep_their_whole_lines() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pstore");
        let record = std::fs::read(directory.join("sysrq.6.12.dmesg-erst-1.enc.z")).unwrap();
        let whole = File::read(&record, 0);
        assert!(!is_cut(&whole) && whole.parts.len() == 1);
        for kept in [record.len() - 1, record.len() / 2, record.len() / 4] {
            for notice in [&b""[..], b"\nECC: 1 Corrected bytes, 2 unrecoverable blocks\n"] {
                let cut = File::read(&[&record[..kept], notice].concat(), 0);
                assert!(is_cut(&cut), "{kept}");
                assert_eq!(cut.lost_blocks, if notice.is_empty() { 0 } else { 2 });
                let (text, of_whole) = (&cut.parts[0].text, &whole.parts[0].text);
                assert!(of_whole.starts_with(text.as_str()) && text.ends_with('\n'), "{kept}");
                assert!(text.len() > of_whole.len() * kept / record.len() / 2, "{kept}: {}", text.len());
            }
        }
        // What is not even a line.
        assert!(File::read(&record[..20], 0).parts.is_empty());
    }

    #[test]
    fn damaged_compressed_records_keep_what_precedes_the_damage() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pstore");
        let record = std::fs::read(directory.join("sysrq.6.12.dmesg-erst-1.enc.z")).unwrap();
        let whole = File::read(&record, 0);
        assert_eq!(whole.fault, None);
        let mut bad = record.clone();
        let at = bad.len() / 2;
        bad[at..].fill(0xff);
        let found = File::read(&bad, 0);
        let (text, of_whole) = (&found.parts[0].text, &whole.parts[0].text);
        assert!(text.len() > of_whole.len() / 4 && text.ends_with('\n') && is_cut(&found));
        let kept = text.bytes().zip(of_whole.bytes()).take_while(|(one, other)| one == other).count();
        assert!(kept > of_whole.len() / 4, "{kept}");
        let fault = found.fault.unwrap();
        assert!(fault.starts_with("it is damaged: "), "{fault}");
        assert!(fault.ends_with(&format!(" of its {} bytes could be decompressed", record.len())), "{fault}");
    }

    #[test]
    fn only_the_checksum_of_a_record_may_be_damaged() {
        let text = "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        // zlib's format, with a stored block.
        let length = u16::try_from(text.len()).unwrap();
        let mut record = vec![0x78, 0x01, 1];
        record.extend(length.to_le_bytes());
        record.extend((!length).to_le_bytes());
        record.extend(text.as_bytes());
        record.extend(*b"abcd");
        let found = File::read(&record, 0);
        assert_eq!(found.parts[0].text, text[14..]);
        assert!(!is_cut(&found));
        assert_eq!(found.fault.as_deref(), Some("it is damaged: its checksum is not that of its text"));
    }

    #[test]
    fn a_record_that_is_too_long_says_so() {
        // Stored blocks of raw DEFLATE.
        let text = format!("Panic#1 Part1\n{}", "<6>[    1.000000] x\n".repeat(MAX_INFLATED / 20 + 1));
        let mut record = Vec::new();
        for block in text.as_bytes().chunks(60_000) {
            let length = u16::try_from(block.len()).unwrap();
            record.push(0);
            record.extend(length.to_le_bytes());
            record.extend((!length).to_le_bytes());
            record.extend(block);
        }
        record.extend([1, 0, 0, 0xff, 0xff]);
        let found = File::read(&record, 0);
        assert!(found.bytes <= MAX_INFLATED && found.bytes > MAX_INFLATED - 30 && is_cut(&found));
        assert!(found.fault.unwrap().starts_with("it decompresses to more than 1 MiB"));
    }

    #[test]
    fn the_reasons_of_kernels_before_5_8_are_known() {
        for reason in ["Restart", "Halt", "Poweroff", "Emergency", "Shutdown"] {
            let text = format!("{reason}#1 Part1\n<0>[    3.000000] reboot: x\n");
            let file = File::read(text.as_bytes(), 0);
            assert_eq!(file.parts[0].event.to_string(), format!("{reason}#1"));
            assert_eq!(file.parts[0].event.is_orderly(), reason != "Emergency");
        }
    }

    #[test]
    fn lines_may_end_as_on_windows() {
        const TEXT: &str = "dmesg-a-1:\nPanic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n\nNo errors detected\n";
        for (from, end) in [(0, "\r\n"), (11, "\r\n"), (11, "\r\r\n")] {
            let unix = File::read(&TEXT.as_bytes()[from..], 0);
            for mark in ["", BYTE_ORDER_MARK] {
                let text = format!("{mark}{}", TEXT.get(from..).unwrap().replace('\n', end));
                assert!(is_pstore(text.as_bytes()), "{text:?}");
                let read = File::read(text.as_bytes(), 0);
                assert_eq!(read.parts[0].text, unix.parts[0].text);
                assert_eq!((read.parts.len(), is_cut(&read)), (1, false));
            }
        }
        assert!(!is_pstore(b"Panic#1 Par\rt1\n"));
    }

    #[test]
    fn records_that_end_within_a_line_are_cut() {
        let is_cut = |text: &str| is_cut(&File::read(text.as_bytes(), 0));
        let whole = "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n";
        assert!(!is_cut(whole) && is_cut(&whole[..whole.len() - 1]) && is_cut("Panic#1 Part1"));
        for notice in ["No errors detected\n", "ECC: 3 Corrected bytes, 0 unrecoverable blocks\n"] {
            assert!(!is_cut(&format!("{whole}\n{notice}")));
            assert!(is_cut(&format!("{whole}<4>[    3.100000] Call Tr\n{notice}")));
        }
    }
}
