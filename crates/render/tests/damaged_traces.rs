//! Damaged traces end in an error or a report, never in a panic.

use std::path::Path;

use pagehaul_reclaim::analyse;
use pagehaul_render::reclaim::{report as text, report_page};
use pagehaul_trace::{Input, TraceFile};
use proptest::prelude::*;

fn bytes(name: &str) -> Vec<u8> {
    let input = Input::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap();
    input.read_exact_at(0, input.len(), "all").unwrap()
}

fn read(bytes: Vec<u8>) {
    let Ok(mut recording) = TraceFile::from_input(Input::memory(bytes, "damaged")) else { return };
    if let Ok(report) = analyse(&mut recording, "damaged", "damaged") {
        assert!(!text(&report).is_empty() && !report_page(&[report]).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn bytes_may_be_anything(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40), file in 0..5_usize) {
        let name = [
            "trace/tests/data/memcg-6.18-v6.dat.gz",
            "trace/tests/data/memcg-6.18-v7.dat.gz",
            "trace/tests/data/memcg-6.18-v7-zstd.dat",
            "reclaim/tests/data/guest-6.12.pht",
            "reclaim/tests/data/report.txt.gz",
        ][file];
        let mut bytes = bytes(name);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read(bytes);
    }

    #[test]
    fn headers_may_say_anything(changes in prop::collection::vec((0..600_usize, any::<u8>()), 1..20), file in 0..3_usize) {
        let name = ["trace/tests/data/memcg-6.18-v6.dat.gz", "trace/tests/data/memcg-6.18-v7.dat.gz", "reclaim/tests/data/guest-6.12.pht"][file];
        let mut bytes = bytes(name);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        read(bytes);
    }
}
