//! The kernel's log of both formats, whole and damaged.

use std::os::unix::fs::FileExt;

use pagehaul_kernel::{Caller, KernelLog};
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{MapPolicy, PhysMemory};
use pagehaul_synth::{Era, Image, LOG_PAGES, Machine, Message};
use pagehaul_vmcore::ElfVmcore;

const LOG: u64 = 0x2800;
const TEXTS: [&str; 5] = [
    "Linux version 6.12",
    "a line\nand one more",
    "",
    "a longer line, so that blocks have different sizes and the end of the ring comes at odd places",
    "BUG: unable to handle page fault",
];

/// 32 MiB of memory.
fn small(era: Era) -> Machine {
    Machine::new(era).ram(0x100_0000, 0x300_0000).load_at(0x100_0000).clone()
}

fn messages(count: usize) -> Vec<Message> {
    let message = |index: usize| Message {
        nanoseconds: index as u64 * 1_000_001,
        level: (index % 8) as u8,
        caller: if index.is_multiple_of(2) { 100 + index as u32 } else { 1 << 31 | 1 },
        text: TEXTS[index % TEXTS.len()],
    };
    (0..count).map(message).collect()
}

fn read(image: &Image) -> KernelLog {
    let file = tempfile::NamedTempFile::new().unwrap();
    image.elf().write(file.path()).unwrap();
    let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
    KernelLog::read(&memory).unwrap()
}

#[test]
fn messages_come_in_order_as_they_were_written() {
    for (era, ring) in [(Era::V6_12, true), (Era::V5_10, true), (Era::V4_15, false), (Era::V4_4, false)] {
        // Fewer than there is room for, and so many that both descriptors and text have wrapped.
        for count in [0, 1, 7, 17, 100] {
            let mut machine = small(era);
            let kept = machine.log(LOG, &messages(count));
            if count == 0 && ring {
                continue;
            }
            assert!(kept.len() == count || count > 7, "{era:?}: {count}");
            let log = read(&machine.build());
            let found: Vec<_> =
                log.records.iter().map(|r| (r.nanoseconds, r.level, r.text.as_str())).collect();
            let expected: Vec<_> = kept.iter().map(|m| (m.nanoseconds, m.level, m.text)).collect();
            assert_eq!(found, expected, "{era:?}: {count}");
            assert_eq!(log.damaged, 0);
            if ring {
                let caller = |m: &Message| match m.caller >> 31 {
                    1 => Caller::Cpu(1),
                    _ => Caller::Task(m.caller),
                };
                assert!(log.records.iter().map(|r| r.caller).eq(kept.iter().map(|m| Some(caller(m)))));
                assert!(log.records.iter().zip(1..).all(|(r, n)| r.sequence.is_some_and(|s| s + 1 >= n)));
            }
        }
    }
}

/// A text that is not UTF-8 keeps its bytes. A record without a text block is skipped, as crash and makedumpfile do.
#[test]
fn bytes_are_kept_and_records_without_text_skipped() {
    let mut machine = small(Era::V6_12);
    machine.log(LOG, &messages(3));
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.build().elf().write(file.path()).unwrap();
    let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
    let piece = memory.ranges().find(LOG << 12).unwrap();
    let start = piece.offset + ((LOG << 12) - piece.start);
    let mut pages = vec![0; LOG_PAGES as usize * 4096];
    file.as_file().read_exact_at(&mut pages, start).unwrap();
    let text = pages.windows(TEXTS[1].len()).position(|bytes| bytes == TEXTS[1].as_bytes()).unwrap();
    file.as_file().write_all_at(b"\xff", start + text as u64).unwrap();
    // The first descriptor is in slot 13. 3 is the kernel's EMPTY_LINE_LPOS (before 6.12: NO_LPOS).
    file.as_file()
        .write_all_at(&[3u64, 3].map(u64::to_le_bytes).concat(), start + 0x400 + 13 * 24 + 8)
        .unwrap();
    let log = KernelLog::read(&memory).unwrap();
    let found: Vec<_> = log.records.iter().map(|record| (record.bytes(), record.text.as_str())).collect();
    let replaced = "\u{fffd} line\nand one more";
    assert_eq!(found, [(&b"\xff line\nand one more"[..], replaced), (&[], "")]);
    assert_eq!(log.damaged, 0);
}

/// Whatever is changed, nothing panics, and records that make no sense are counted.
#[test]
fn damaged_records_are_skipped_and_counted() {
    for era in [Era::V6_12, Era::V4_15] {
        let mut machine = small(era);
        let kept = machine.log(LOG, &messages(14));
        let file = tempfile::NamedTempFile::new().unwrap();
        machine.build().elf().write(file.path()).unwrap();
        let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
        let piece = memory.ranges().find(LOG << 12).unwrap();
        let start = piece.offset + ((LOG << 12) - piece.start);
        let mut noticed = 0;
        for at in (0..LOG_PAGES * 4096).step_by(7) {
            let mut byte = [0];
            file.as_file().read_exact_at(&mut byte, start + at).unwrap();
            file.as_file().write_all_at(&[byte[0] ^ 0x81], start + at).unwrap();
            match KernelLog::read(&memory) {
                Ok(log) => {
                    assert!(log.records.len() <= 64);
                    noticed += u64::from(log.damaged > 0 || log.records.len() < kept.len());
                }
                Err(_) => noticed += 1,
            }
            file.as_file().write_all_at(&byte, start + at).unwrap();
        }
        assert!(noticed > 5, "{era:?}: {noticed}");
        let log = KernelLog::read(&memory).unwrap();
        assert_eq!((log.records.len(), log.damaged), (kept.len(), 0));
    }
}
