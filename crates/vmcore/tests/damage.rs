//! Dumps that were truncated, changed or mixed: nothing panics, no page has contents that it did not have, and all that is whole
//! can be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, PageState};
use pagehaul_synth::{Codec, Content, Era, Image, Machine, Noise, Records, flatten};
use pagehaul_vmcore::Source;

/// 24 MiB, most of it of nothing.
fn image(seed: u64) -> Image {
    Machine::new(Era::V6_12)
        .ram(0x100_0000, 0x280_0000)
        .load_at(0x100_0000)
        .populate(0x2000, 0x200, seed)
        .fill(0x2100, Content::Random)
        .build()
}

/// Opens the files and reads every page: its state, after its contents were held against the machine's.
fn states(image: &Image, files: &[&Path], wrong: &mut u64) -> Option<BTreeMap<u64, PageState>> {
    let paths: Vec<PathBuf> = files.iter().map(|path| path.to_path_buf()).collect();
    let source = Source::open_all(&paths, MapPolicy::default()).ok()?;
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let read = |pfn: u64| match view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
        Ok(page) => {
            *wrong += u64::from(*page != image.page(pfn));
            (pfn, PageState::Present)
        }
        Err(error) => (pfn, error.state()),
    };
    Some(image.pfns().into_iter().map(read).collect())
}

/// Where the parts of a kdump file begin: sub header, bitmaps, descriptors, and the data of the first page.
fn boundaries(dump: &[u8]) -> [usize; 5] {
    let word = |at: usize| u32::from_le_bytes(dump[at..at + 4].try_into().unwrap()) as usize;
    let (sub, bitmaps) = (word(432), word(436));
    let bitmap1 = (1 + sub) * 4096;
    let descriptors = bitmap1 + bitmaps * 4096;
    let first = u64::from_le_bytes(dump[descriptors..descriptors + 8].try_into().unwrap()) as usize;
    [4096, bitmap1, bitmap1 + bitmaps / 2 * 4096, descriptors, first]
}

/// The pages whose descriptors and data lie before `cut`.
fn whole(dump: &[u8], pfns: &[u64], cut: usize) -> Vec<u64> {
    let [.., descriptors, _] = boundaries(dump);
    let held = |(rank, pfn): (usize, &u64)| {
        let desc = &dump[descriptors + rank * 24..descriptors + (rank + 1) * 24];
        let at = u64::from_le_bytes(desc[..8].try_into().unwrap()) as usize;
        let size = u32::from_le_bytes(desc[8..12].try_into().unwrap()) as usize;
        (descriptors + (rank + 1) * 24 <= cut && at + size <= cut).then_some(*pfn)
    };
    pfns.iter().enumerate().filter_map(held).collect()
}

fn present(states: &BTreeMap<u64, PageState>) -> Vec<u64> {
    states.iter().filter(|(_, state)| **state == PageState::Present).map(|(pfn, _)| *pfn).collect()
}

#[test]
fn cut_files_give_what_they_hold() {
    let image = image(5);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let mut noise = Noise::new(1);
    let good = image.kdump().level(31).mixed().bytes();
    let pfns = image.kdump().level(31).pfns();
    let [sub, bitmap1, bitmap2, descriptors, data] = boundaries(&good);
    let mut cuts: Vec<usize> = [0, 1, sub, bitmap1, bitmap2, descriptors, data]
        .into_iter()
        .flat_map(|at| [at.saturating_sub(1), at, at + 1])
        .collect();
    cuts.extend((0..100).map(|_| (noise.next() % good.len() as u64) as usize));
    let mut wrong = 0;
    for cut in cuts {
        std::fs::write(&path, &good[..cut]).unwrap();
        match states(&image, &[&path], &mut wrong) {
            Some(states) => {
                assert_eq!(present(&states), whole(&good, &pfns, cut), "cut at {cut}");
                let damaged = states.values().filter(|state| **state == PageState::Damaged).count();
                assert_eq!(damaged, 0, "cut at {cut}: what is not there is missing, not damaged");
            }
            None => assert!(cut < descriptors, "cut at {cut}"),
        }
    }
    assert_eq!(wrong, 0);
}

#[test]
fn cut_streams_and_vmcores_give_what_they_hold() {
    let image = image(5);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let mut noise = Noise::new(2);
    let dump = image.kdump().level(31).codec(Codec::Zlib).bytes();
    let mut wrong = 0;
    for good in [flatten(&dump, 3000, Records::Ascending), image.elf().bytes()] {
        std::fs::write(&path, &good).unwrap();
        let all = present(&states(&image, &[&path], &mut wrong).unwrap());
        let mut before = 0;
        let mut cuts: Vec<usize> = (0..40).map(|_| (noise.next() % good.len() as u64) as usize).collect();
        cuts.sort_unstable();
        for cut in cuts {
            std::fs::write(&path, &good[..cut]).unwrap();
            let Some(states) = states(&image, &[&path], &mut wrong) else {
                assert_eq!(before, 0, "cut at {cut}: less was enough");
                continue;
            };
            // The more there is of the file, the more of it can be read.
            let found = present(&states);
            assert!(found.len() >= before && found.iter().all(|pfn| all.contains(pfn)), "cut at {cut}");
            before = found.len();
        }
        assert!(before > all.len() / 2);
    }
    assert_eq!(wrong, 0);
}

#[test]
fn flipped_bits_touch_their_own_pages_only() {
    let image = image(5);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let mut noise = Noise::new(3);
    let good = image.kdump().level(31).codec(Codec::Zlib).bytes();
    let pfns = image.kdump().level(31).pfns();
    let [_, bitmap1, bitmap2, descriptors, _] = boundaries(&good);
    // One page of zeros stands for all, so what changes in it changes in all of them; the others follow.
    let zero_page = descriptors + 24 * pfns.len();
    let data = zero_page + PAGE_SIZE;
    // Wrong pages at most, and pages lost at most. Bitmap 1 only says what exists; of bitmap 2 every bit counts, as with one
    // more or less nobody knows which page is whose. A raw page, and one whose descriptor leads to another raw page, cannot
    // tell that it changed; what zlib packed can.
    for (range, most_wrong, most_lost) in [
        (bitmap1..bitmap2, 0, 0),
        (bitmap2..descriptors, 0, pfns.len()),
        (descriptors..zero_page, 1, 1),
        (data..good.len(), 1, 1),
    ] {
        for _ in 0..50 {
            let at = range.start + (noise.next() % range.len() as u64) as usize;
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (noise.next() % 8);
            std::fs::write(&path, &bytes).unwrap();
            let mut wrong = 0;
            let states = states(&image, &[&path], &mut wrong).unwrap();
            let lost = pfns.iter().filter(|pfn| states[pfn] != PageState::Present).count();
            assert!(
                wrong <= most_wrong && lost <= most_lost,
                "{wrong} wrong, {lost} lost after a flip at {at}"
            );
        }
    }
}

#[test]
fn headers_that_changed_never_panic() {
    let image = image(5);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let good = image.kdump().level(31).codec(Codec::Zlib).bytes();
    let mut refused = 0;
    for at in (0..12).chain(404..464).chain(4096..4200) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        refused += u64::from(states(&image, &[&path], &mut 0).is_none());
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn parts_of_different_dumps_are_not_mixed() {
    let (image, other) = (image(5), image(6));
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..4).map(|index| directory.path().join(format!("part.{index}"))).collect();
    let parts = image.kdump().level(31).parts(3);
    for (path, part) in paths.iter().zip(&parts) {
        std::fs::write(path, part).unwrap();
    }
    std::fs::write(&paths[3], &other.kdump().level(31).parts(3)[1]).unwrap();
    let mut wrong = 0;
    assert!(states(&image, &[&paths[0], &paths[3], &paths[2]], &mut wrong).is_none());
    // A flattened one among plain ones, in any order; then without it.
    std::fs::write(&paths[1], flatten(&parts[1], 70_000, Records::Shuffled)).unwrap();
    let all = states(&image, &[&paths[2], &paths[0], &paths[1]], &mut wrong).unwrap();
    assert_eq!(present(&all), image.expected(31));
    let some = states(&image, &[&paths[2], &paths[0]], &mut wrong).unwrap();
    let missing = some.values().filter(|state| **state == PageState::Missing).count();
    assert_eq!(present(&some).len() + missing, image.expected(31).len());
    assert!(missing > 0);
    assert_eq!(wrong, 0);
}
