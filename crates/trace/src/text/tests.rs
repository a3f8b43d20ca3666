//! The result does not depend on chunk boundaries or the number of threads.

use std::fmt::Write;

use proptest::prelude::*;

use super::chunks::Chunks;
use super::reader::TextReader;
use crate::input::Input;
use crate::source::EventSource;

/// Length of the longest line that is not skipped, in these tests.
const LONGEST: usize = 300;

/// Dumps all that a reader returns for a text split into chunks of `size` bytes.
fn all(text: &[u8], size: usize, threads: usize) -> String {
    let chunks = Chunks::of_size(Input::memory(text.to_vec(), "text"), size, LONGEST);
    let mut reader = match TextReader::of_chunks(&chunks, threads) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    let mut out = String::new();
    while let Some(event) = reader.next_event().unwrap() {
        let format = event.format();
        let _ = write!(out, "{} {} {} {}", event.ts(), event.cpu(), event.pid(), event.after_gap());
        let _ = write!(out, " {:?} {}:{} {}", event.comm(), format.system, format.name, format.index);
        for field in &format.fields {
            let _ = write!(out, " {}={:?} {:?}", field.name, event.text(field.slot), event.u64(field.slot));
        }
        out.push('\n');
    }
    let _ = write!(out, "{:?} {:?}", reader.losses(), reader.info().warnings);
    out
}

/// Lines of all kinds, most of them events.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let header = (0..3_u32, 1..4_i32, 0..100_u64)
        .prop_map(|(cpu, pid, ms)| format!("   dd-{pid} [{cpu:03}] 1.{ms:03}: "));
    let body = prop_oneof![
        4 => "mm_vmscan_lru_isolate: order=[0-9]{1,3} nr_taken=-?[0-9]{1,20} flags=[A-Z|]{0,5}",
        2 => "(vmscan:|sched:|)mm_vmscan_kswapd_wake: nid=[0-3]( order=[0-9])?( zid=0x[0-9a-f]{1,3})?",
        2 => "mm_shrink_slab_start: [a-c+]{1,3} [0-9a-f]{1,5}: nid: [0-9]( objects to shrink ([0-9]{1,3}|many|0xf))?( last)?( gfp GFP_[A-Z]{1,2})?",
        1 => "[a-c]{1,2}: [a-c= 0-9\t]{0,20}",
        // More formats of one name than are kept.
        2 => "many: [a-z]{1,2}=[0-9]",
        1 => "long: x=1 text=[a-z]{200,400}",
    ];
    let event = (header, body).prop_map(|(header, body)| format!("{header}{body}").into_bytes());
    let other = prop_oneof![
        Just(Vec::new()),
        Just(b"# tracer: nop".to_vec()),
        Just(b"CPU:1 [LOST 22 EVENTS]".to_vec()),
        Just(b"CPU:0 [EVENTS DROPPED]".to_vec()),
        Just(b"# entries-in-buffer/entries-written: 205/305   #P:4".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(b'x'..b'z', 0..900),
    ];
    prop_oneof![8 => event, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn borders_and_threads_change_nothing(
        lines in prop::collection::vec(line(), 0..120),
        size in prop_oneof![1..40_usize, 40..3000_usize],
        threads in 1..4_usize,
        end in any::<bool>(),
    ) {
        let mut text = lines.join(&b'\n');
        if end {
            text.push(b'\n');
        }
        prop_assert_eq!(all(&text, text.len() + 1, 1), all(&text, size, threads));
    }
}

#[test]
fn long_lines_are_left_out_whole() {
    let event = |text: usize| format!("dd-1 [000] 1.5: long: text={}\n", "x".repeat(text));
    let head = event(0).len() - 1;
    let text = [event(5), event(LONGEST - head), event(LONGEST - head + 1), event(4000), event(7)].concat();
    for size in [1, 7, 250, 300, 301, 1000, 10_000] {
        let found = all(text.as_bytes(), size, 2);
        assert_eq!(found.lines().filter(|line| line.contains("long")).count(), 3, "{size}: {found}");
    }
}

#[test]
fn kinds_beyond_what_is_kept_are_counted() {
    let text: String = (0..100).map(|at| format!("dd-1 [000] 1.5: many: f{at}=1\n")).collect();
    for size in [33, 500, 100_000] {
        let found = all(text.as_bytes(), size, 3);
        assert_eq!(found.lines().count(), 65, "{size}");
        assert!(found.contains("unknown_events: 36"), "{size}: {found}");
    }
}
