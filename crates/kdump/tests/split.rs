//! Split sets: parts in any order, parts that are missing, parts that do not belong together.

mod common;

use common::{PAGE, Spec, mixed, open};
use pagehaul_kdump::{KdumpFile, PageDesc, SplitError, SplitSet};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{PageState, PhysMemory, bits};

const PARTS: [std::ops::Range<u64>; 3] = [0..0x300, 0x300..0x500, 0x500..40_000];

fn part(spec: &Spec, pfns: std::ops::Range<u64>) -> KdumpFile {
    open(Spec { split: Some(pfns), ..spec.clone() }.build()).unwrap()
}

fn states(spec: &Spec, set: &SplitSet, given: impl Fn(u64) -> bool) {
    let mut view = set.view();
    let mut marked = vec![0; 40_000usize.div_ceil(64)];
    set.mark_stored(PhysAddr::of_4k_page(0), &mut marked).unwrap();
    for pfn in 0..40_000 {
        let dumped = spec.pages.get(&pfn);
        let expected = match dumped {
            Some(_) if given(pfn) => PageState::Present,
            Some(_) => PageState::Missing,
            None if spec.ram.iter().any(|range| range.contains(&pfn)) => PageState::Excluded,
            None => PageState::Absent,
        };
        assert_eq!(bits::get(&marked, pfn as usize), expected == PageState::Present);
        match view.window(pfn << 12, PAGE) {
            Ok(page) => {
                assert!(expected == PageState::Present && Some(page) == dumped.map(|(_, page)| &page[..]))
            }
            Err(error) => assert_eq!(error.state(), expected, "PFN {pfn:#x}: {error}"),
        }
    }
}

#[test]
fn parts_make_a_whole_in_any_order() {
    let spec = mixed();
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let set = SplitSet::new(order.map(|at| part(&spec, PARTS[at].clone())).into()).unwrap();
        assert!(!set.is_incomplete(), "{:?}", set.faults());
        states(&spec, &set, |_| true);
        assert_eq!(set.notes(), &spec.notes);
    }
}

#[test]
fn parts_without_pages_are_no_harm() {
    let spec = mixed();
    for empty in [0..0, 0x301..0x301, 40_000..40_000] {
        let mut parts: Vec<KdumpFile> = PARTS.map(|pfns| part(&spec, pfns)).into();
        parts.extend([part(&spec, empty.clone()), part(&spec, empty)]);
        let set = SplitSet::new(parts).unwrap();
        assert_eq!(set.faults(), [""; 0]);
        states(&spec, &set, |_| true);
    }
}

#[test]
fn pages_of_parts_that_are_missing_are_missing() {
    let spec = mixed();
    for (missing, gap) in PARTS.into_iter().enumerate() {
        let given = (0..3).filter(|at| *at != missing).map(|at| part(&spec, PARTS[at].clone()));
        let set = SplitSet::new(given.collect()).unwrap();
        assert!(set.is_incomplete());
        let expected = format!("PFNs {:#x} to {:#x} is missing", gap.start, gap.end - 1);
        assert!(set.faults()[0].contains(&expected), "{:?}", set.faults());
        states(&spec, &set, |pfn| !gap.contains(&pfn));
    }
}

/// A part as it is while it is written: marked, for all PFNs, with a descriptor of zeros for each page of the others.
fn unfinished(spec: &Spec, own: &std::ops::Range<u64>) -> KdumpFile {
    let all = Spec { split: Some(0..40_000), incomplete: true, ..spec.clone() };
    let mut file = all.build();
    for (rank, _) in all.pages.keys().enumerate().filter(|(_, pfn)| !own.contains(pfn)) {
        let at = all.layout().descriptor_offset(rank as u64) as usize;
        file[at..at + PageDesc::SIZE].fill(0);
    }
    open(file).unwrap()
}

#[test]
fn parts_that_were_never_finished_are_all_read() {
    let spec = mixed();
    // One page was written to none of them.
    let lost = 0x100 + 3 * 200;
    let written = [PARTS[0].clone(), PARTS[1].start..lost, lost + 1..40_000];
    for given in [&[0, 1, 2][..], &[2, 1, 0], &[1, 2], &[0, 2]] {
        let parts = given.iter().map(|&at| unfinished(&spec, &written[at])).collect();
        let has = |pfn| given.iter().any(|&at| written[at].contains(&pfn));
        check_unfinished(&spec, &SplitSet::new(parts).unwrap(), has);
    }
    // The machine died when the first had got its own range.
    let sealed = Spec { incomplete: true, split: Some(PARTS[0].clone()), ..spec.clone() };
    let [_, second, third] = &written;
    let parts = vec![unfinished(&spec, second), open(sealed.build()).unwrap(), unfinished(&spec, third)];
    check_unfinished(&spec, &SplitSet::new(parts).unwrap(), |pfn| pfn != lost);
}

fn check_unfinished(spec: &Spec, set: &SplitSet, has: impl Fn(u64) -> bool) {
    assert!(set.is_incomplete());
    assert!(set.faults().iter().all(|fault| fault.contains("marked incomplete")), "{:?}", set.faults());
    let (mut view, mut copy) = (set.view(), [0; PAGE]);
    for (&pfn, (_, contents)) in &spec.pages {
        let copied = view.copy_page(PhysAddr::of_4k_page(pfn), &mut copy).map(|()| copy.to_vec());
        let shown = view.window(pfn << 12, PAGE).map(<[u8]>::to_vec);
        for found in [copied, shown] {
            match found {
                Ok(page) => assert!(has(pfn) && page == *contents, "PFN {pfn:#x}"),
                Err(error) => {
                    assert!(!has(pfn) && error.state() == PageState::Missing, "PFN {pfn:#x}: {error}")
                }
            }
        }
    }
    let excluded = view.window(0x101 << 12, PAGE).unwrap_err();
    assert_eq!(excluded.state(), PageState::Excluded, "{excluded}");
    assert_eq!(view.window(0xa0 << 12, PAGE).unwrap_err().state(), PageState::Absent);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let spec = mixed();
    let mut other = mixed();
    other.pages.remove(&0x103);
    let refused = |parts: Vec<KdumpFile>| SplitSet::new(parts).err().unwrap();
    let [first, second, _] = PARTS;
    let error = refused(vec![part(&spec, first.clone()), part(&other, second.clone())]);
    assert!(matches!(error, SplitError::Different { what: "bitmaps", .. }), "{error}");
    let error = refused(vec![part(&spec, first.clone()), part(&spec, 0x2ff..0x500)]);
    assert!(matches!(error, SplitError::Overlap { pfn: 0x2ff, .. }), "{error}");
    let error = refused(vec![part(&spec, first.clone()), open(spec.build()).unwrap()]);
    assert!(matches!(error, SplitError::NoPart { .. }), "{error}");
    assert!(matches!(refused(vec![]), SplitError::Empty));
    // A part of one dump that was erased, and one of the same that was not.
    let mut erased = mixed();
    pagehaul_elfcore::notes::push(&mut erased.notes, "ERASEINFO", 0, b"erase key(user).payload size 16\n");
    let error = refused(vec![part(&spec, first.clone()), part(&erased, second.clone())]);
    assert!(matches!(error, SplitError::Different { what: "records of what was erased", .. }), "{error}");
    let error = refused(vec![part(&spec, first.clone()), part(&spec, second), part(&spec, first.clone())]);
    assert!(matches!(error, SplitError::Overlap { pfn: 0, .. }), "{error}");
    // Under two names, too.
    let directory = tempfile::tempdir().unwrap();
    let [one, link] = ["one", "link"].map(|name| directory.path().join(name));
    std::fs::write(&one, Spec { split: Some(first), ..spec }.build()).unwrap();
    std::fs::hard_link(&one, &link).unwrap();
    let parts = [one, link].map(|path| KdumpFile::open(Box::new(PlainFile::open(&path).unwrap())).unwrap());
    assert!(matches!(refused(parts.into()), SplitError::Twice(_)));
}
