//! Flattened streams that end early, at any byte: what arrived is read, and agrees with what `makedumpfile -R` makes of it.

mod common;

use std::fs;

use common::{MemFile, PAGE, Spec, mixed, without_index};
use pagehaul_kdump::write::{FlattenedOutput, Rearranged, rearrange};
use pagehaul_kdump::{Flattened, KdumpFile, PageDesc, STATUS_OFFSET, TRUNCATED_STREAM};
use pagehaul_output::{DumpFileOptions, OutputFile};
use pagehaul_physmem::{PageState, PhysMemory};
use pagehaul_run::BytesWritten;
use proptest::prelude::*;

/// How a stream's descriptors and data follow each other.
#[derive(Debug, Clone, Copy)]
struct Writer {
    /// Descriptors of a record; the data of as many pages goes before or behind it.
    descriptors: usize,
    descriptors_first: bool,
    /// Bytes of a record at most: no record ends where a descriptor does.
    most: usize,
    /// Bitmap 2 comes in pieces of so many bytes, each before its pages, as with makedumpfile's `--cyclic-buffer`.
    cycle: Option<usize>,
}

/// A dump as a stream: headers and bitmaps, then pages, then the status word.
fn stream(spec: &Spec, writer: Writer) -> Vec<u8> {
    let plain = spec.build();
    let layout = spec.layout();
    let mut out = FlattenedOutput::new(Vec::new(), BytesWritten::default()).unwrap();
    let mut record = |from: usize, to: usize| {
        for start in (from..to).step_by(writer.most) {
            out.record(start as u64, &plain[start..to.min(start + writer.most)]).unwrap();
        }
    };
    let (bitmap2, descriptors) = (layout.bitmap2_offset() as usize, layout.descriptors_offset() as usize);
    let status = STATUS_OFFSET as usize;
    let count = spec.pages.len();
    let offset = |rank: usize| {
        let at = layout.descriptor_offset(rank as u64) as usize;
        u64::from_le_bytes(plain[at..at + 8].try_into().unwrap()) as usize
    };
    let zero_page = layout.zero_page_offset(count as u64).unwrap() as usize;
    // Data is in the order of the descriptors, but for zeros.
    let data_of = |rank: usize| (rank..count).map(offset).find(|at| *at != zero_page).unwrap_or(plain.len());
    record(0, status);
    record(status + 4, PAGE);
    record(PAGE, bitmap2);
    let cycle = writer.cycle.unwrap_or(descriptors - bitmap2);
    let mut rank = 0;
    for start in (bitmap2..descriptors).step_by(cycle) {
        let end = descriptors.min(start + cycle);
        record(start, end);
        if start == bitmap2 {
            record(zero_page, zero_page + PAGE);
        }
        let pfns = ((start - bitmap2) * 8) as u64..((end - bitmap2) * 8) as u64;
        let last = rank + spec.pages.range(pfns).count();
        while rank < last {
            let next = last.min(rank + writer.descriptors);
            let place = |rank: usize| layout.descriptor_offset(rank as u64) as usize;
            let data = data_of(rank)..data_of(next);
            if writer.descriptors_first {
                record(place(rank), place(next));
                record(data.start, data.end);
            } else {
                record(data.start, data.end);
                record(place(rank), place(next));
            }
            rank = next;
        }
    }
    record(status, status + 4);
    without_index(out.finish().unwrap())
}

/// What the file that `makedumpfile -R` makes of a stream has.
fn salvaged(bytes: &[u8]) -> Option<KdumpFile> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let options = DumpFileOptions { overwrite: false, checksums: false, sources: &[] };
    let mut file = OutputFile::create(&path, options, BytesWritten::default()).unwrap();
    let end = rearrange(&mut &bytes[..], &mut file).ok()?;
    assert!(matches!(end, Rearranged::Truncated(_)));
    common::open(fs::read(&path).unwrap()).ok()
}

/// The state of each page of a dump, all of whose contents are right.
fn states(spec: &Spec, dump: &KdumpFile) -> Vec<PageState> {
    let mut view = dump.view();
    let mut state = |(pfn, (_, contents)): (&u64, &(_, Vec<u8>))| match view.window(pfn << 12, PAGE) {
        Ok(found) => {
            assert!(found == contents, "PFN {pfn:#x} has other contents");
            PageState::Present
        }
        Err(error) => error.state(),
    };
    spec.pages.iter().map(&mut state).collect()
}

/// Asserts what a stream that ends after `cut` bytes is. Returns how many pages it has, if it opens.
fn check(spec: &Spec, writer: Writer, whole: &[u8], cut: usize) -> Option<usize> {
    let cut = &whole[..cut];
    let from_file = salvaged(cut);
    let dump = Flattened::open(MemFile(cut.to_vec())).and_then(KdumpFile::open_flattened);
    let Ok(dump) = dump else {
        // Not a page is in what does not open.
        let lost = from_file
            .map_or(0, |file| states(spec, &file).iter().filter(|s| **s == PageState::Present).count());
        assert_eq!(lost, 0, "{writer:?}: {} bytes", cut.len());
        return None;
    };
    assert!(dump.is_incomplete());
    assert_eq!(dump.faults()[0], TRUNCATED_STREAM);
    let census = dump.census().unwrap();
    assert_eq!(census.damaged, 0, "{writer:?}: {} bytes", cut.len());
    let found = states(spec, &dump);
    let present = found.iter().filter(|state| **state == PageState::Present).count();
    assert_eq!(census.readable() as usize, present);
    let mut descriptors = 0;
    dump.for_each_descriptor(|_, desc: &PageDesc| descriptors += u64::from(desc.offset.get() != 0)).unwrap();
    assert!(descriptors >= census.readable());
    let unknown = dump.faults().iter().any(|fault| fault.contains("its bitmaps did not arrive"));
    assert_eq!(unknown, found.contains(&PageState::Excluded), "{writer:?}: {} bytes", cut.len());
    let is_lost = |state: &PageState| matches!(state, PageState::Missing | PageState::Excluded);
    assert!(found.iter().all(|state| *state == PageState::Present || is_lost(state)));
    // The file has the same pages, but for the descriptor that the end divides: its other bytes are zeros there.
    if let Some(file) = from_file {
        let in_file = states(spec, &file);
        let mut others = found.iter().zip(&in_file).filter(|(here, there)| here != there);
        let divided = others.next();
        assert!(
            divided.is_none_or(|(here, _)| *here == PageState::Missing),
            "{writer:?}: {} bytes",
            cut.len()
        );
        assert_eq!(others.next(), None, "{writer:?}: {} bytes", cut.len());
    }
    Some(present)
}

fn writers() -> impl Strategy<Value = Writer> {
    (1usize..200, any::<bool>(), prop_oneof![Just(1 << 16), 1000usize..5000, 40usize..90], any::<bool>())
        .prop_map(|(descriptors, descriptors_first, most, cycles)| Writer {
            descriptors,
            descriptors_first,
            most,
            cycle: cycles.then_some(100),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_arrived_is_read(writer in writers(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 6)) {
        let spec = mixed();
        let whole = stream(&spec, writer);
        let mut cuts: Vec<usize> = cuts.iter().map(|at| at.index(whole.len() - 4096) + 4096).collect();
        cuts.sort_unstable();
        let mut before = None;
        for cut in cuts {
            let pages = check(&spec, writer, &whole, cut);
            // What came later took nothing away.
            prop_assert!(pages >= before, "{pages:?} pages of {cut} bytes, {before:?} of less");
            before = pages;
        }
        // Without its end record alone, it has all pages.
        prop_assert_eq!(check(&spec, writer, &whole, whole.len() - 1), Some(spec.pages.len()));
    }
}

#[test]
fn a_stream_opens_once_its_bitmaps_are_whole() {
    let spec = mixed();
    let writer = Writer { descriptors: 50, descriptors_first: true, most: 1 << 16, cycle: None };
    let whole = stream(&spec, writer);
    let opens = |cut: usize| {
        let flat = Flattened::open(MemFile(whole[..cut].to_vec()));
        flat.and_then(KdumpFile::open_flattened).is_ok()
    };
    let first = (4096..whole.len()).step_by(16).find(|cut| opens(*cut)).unwrap();
    // The stream's header, that of each record, and what is in front of the descriptors.
    let tables = 4096 + spec.layout().descriptors_offset() as usize;
    assert!((tables..tables + 200).contains(&first), "{first}");
    assert!((first..whole.len()).step_by(997).all(opens));
}
