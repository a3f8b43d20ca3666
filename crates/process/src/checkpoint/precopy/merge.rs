//! CRIU's list of a process's pages (`pagemap-PID.img`) and the pages (`pages-N.img`), completed with those that pagehaul has
//! copied.

use std::ops::Range;

use super::store::{PageStore, Place, Spilled};
use super::tracked::{common, exclude, push_joined};
use crate::checkpoint::base::Known;
use crate::checkpoint::kept::CriuImage;
use crate::checkpoint::page_list::{PRESENT, PageList, encode};

/// All pages of a process.
pub(crate) struct Merged {
    parts: Vec<Part>,
    store: PageStore,
    /// CRIU's image, if it was kept.
    pages: Vec<u8>,
    /// Bytes of it otherwise.
    pub(crate) drained: u64,
    /// Whether marks show which pages are in the base, so that none of the others are.
    pub(crate) is_marked: bool,
}

struct Part {
    /// Where it begins in the merged image.
    start: u64,
    addresses: Range<u64>,
    source: Source,
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// CRIU's image, from this offset on.
    Criu(u64),
    /// A copy of pagehaul's, in memory.
    Copy,
    /// In the container: where it begins in what was spilled, which is followed by what was drained.
    Spilled(u64),
    /// The base, as marks or a comparison show.
    Base,
}

struct Entry {
    addresses: Range<u64>,
    flags: u64,
    source: Source,
}

/// Merges CRIU's images with the pages that are `present` and held in `store`, or `unchanged` since the base (none: there are no
/// marks). Returns the list, and the pages. None if the
/// list is not as CRIU 4 writes it.
pub(super) fn merge(
    list: &[u8],
    pages: CriuImage,
    mut present: Vec<Range<u64>>,
    store: PageStore,
    unchanged: Option<Vec<Range<u64>>>,
) -> Option<(Vec<u8>, Merged)> {
    let page = store.page();
    let list = PageList::parse(list, page)?;
    let spilled = store.spilled_bytes();
    let (pages, drained) = match pages {
        CriuImage::Kept(pages) => (pages, 0),
        CriuImage::Drained(bytes) => (Vec::new(), bytes),
    };
    if list.bytes() != pages.len() as u64 + drained {
        return None;
    }
    let mut entries: Vec<Entry> = list
        .entries
        .into_iter()
        .map(|entry| Entry {
            addresses: entry.addresses,
            flags: entry.flags,
            source: if drained > 0 {
                Source::Spilled(spilled + entry.start)
            } else {
                Source::Criu(entry.start)
            },
        })
        .collect();
    entries.sort_by_key(|entry| entry.addresses.start);
    let mut criu: Vec<Range<u64>> = Vec::new();
    entries.iter().for_each(|entry| push_joined(&mut criu, entry.addresses.clone()));
    // CRIU asks about some addresses twice.
    present.sort_unstable_by_key(|range| range.start);
    let (mut copied, mut end) = (Vec::new(), 0);
    for range in present {
        let range = range.start.max(end)..range.end;
        end = end.max(range.end);
        if range.start < range.end {
            exclude(range, &criu, &mut |addresses| push_joined(&mut copied, addresses));
        }
    }
    let is_marked = unchanged.is_some();
    let mut unchanged = unchanged.unwrap_or_default();
    // CRIU asks about some addresses twice.
    unchanged.sort_unstable_by_key(|range| range.start);
    unchanged.dedup_by(|next, last| {
        next.start = next.start.max(last.end);
        next.start >= next.end
    });
    let unchanged = common(&copied, &unchanged);
    let entry = |source| move |addresses| Entry { addresses, flags: PRESENT, source };
    for range in copied {
        exclude(range, &unchanged, &mut |range| {
            store.places(&range, &mut |range, place| {
                let source = match place {
                    Place::Memory => Source::Copy,
                    Place::Spilled(at) => Source::Spilled(at),
                    Place::Base => Source::Base,
                };
                entries.push(entry(source)(range));
            });
        });
    }
    entries.extend(unchanged.into_iter().map(entry(Source::Base)));
    entries.sort_by_key(|entry| entry.addresses.start);
    let mut out = list.head.to_vec();
    let mut parts = Vec::with_capacity(entries.len());
    let (mut start, mut last): (u64, Option<(Range<u64>, u64)>) = (0, None);
    for Entry { addresses, flags, source } in entries {
        match &mut last {
            Some((range, same)) if range.end == addresses.start && *same == flags => {
                range.end = addresses.end
            }
            last => {
                if let Some((range, flags)) = last.replace((addresses.clone(), flags)) {
                    encode(&mut out, range.start, (range.end - range.start) / page, flags);
                }
            }
        }
        let bytes = addresses.end - addresses.start;
        parts.push(Part { start, addresses, source });
        start += bytes;
    }
    if let Some((range, flags)) = last {
        encode(&mut out, range.start, (range.end - range.start) / page, flags);
    }
    Some((out, Merged { parts, store, pages, drained, is_marked }))
}

impl Part {
    fn end(&self) -> u64 {
        self.start + (self.addresses.end - self.addresses.start)
    }
}

impl Merged {
    /// Bytes of the image.
    pub(crate) fn len(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.start + last.addresses.end - last.addresses.start)
    }

    /// The parts of a block, which begins at `offset`, of which it is known where they are.
    pub(crate) fn known(&self, offset: u64, length: u64) -> Vec<(Range<u64>, Known)> {
        let known = self.parts_of(offset, length).filter_map(|(part, range)| {
            let known = match part.source {
                Source::Base => Known::Base,
                Source::Spilled(at) => Known::Spilled(at + (range.start - part.start)),
                Source::Criu(_) | Source::Copy => return None,
            };
            Some((range, known))
        });
        known.collect()
    }

    /// What was spilled, stale pages included, and how much was drained.
    pub(crate) fn take_spilled(&mut self) -> Spilled {
        Spilled { drained: self.drained, ..self.store.take_spilled() }
    }

    /// The parts that lie in a block, and what of the image each of them is there.
    fn parts_of(&self, offset: u64, length: u64) -> impl Iterator<Item = (&Part, Range<u64>)> {
        let (first, end) = (self.parts.partition_point(|part| part.end() <= offset), offset + length);
        let parts = self.parts.iter().skip(first).take_while(move |part| part.start < end);
        parts.map(move |part| (part, part.start.max(offset)..part.end().min(end)))
    }

    /// Copies a part of the image, which begins at `offset`, to `buffer`. What is in the base or was spilled is left as it is.
    pub(crate) fn read(&self, mut offset: u64, mut buffer: &mut [u8]) {
        let first = self.parts.partition_point(|part| part.start <= offset).saturating_sub(1);
        for part in self.parts.iter().skip(first) {
            let into = offset - part.start;
            let length = (part.addresses.end - part.addresses.start - into).min(buffer.len() as u64);
            let (now, later) = buffer.split_at_mut(length as usize);
            match part.source {
                Source::Base | Source::Spilled(_) => {}
                Source::Criu(start) => {
                    let start = (start + into) as usize;
                    now.copy_from_slice(self.pages.get(start..start + now.len()).unwrap_or_default());
                }
                Source::Copy => self.store.read(part.addresses.start + into, now),
            }
            (offset, buffer) = (offset + length, later);
            if buffer.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Room;
    use super::*;
    use crate::checkpoint::container::Block;
    use crate::checkpoint::page_list;
    use crate::units::PAGE_SIZES;

    fn list(size: u64, entries: &[(u64, u64)]) -> Vec<u8> {
        let mut out = page_list::empty(1);
        entries.iter().for_each(|(page, count)| encode(&mut out, page * size, *count, PRESENT | 2));
        out
    }

    fn store(size: u64, ranges: &[Range<u64>]) -> PageStore {
        let mut store = PageStore::new(Room::new(1 << 20, size).unwrap());
        assert_eq!(store.reserve(ranges), []);
        for piece in store.pieces(ranges) {
            // SAFETY: the only reference.
            let memory = unsafe { store.memory(&piece) };
            for (page, bytes) in (piece.addresses.start / size..).zip(memory.chunks_mut(size as usize)) {
                bytes.fill(page as u8);
            }
        }
        store
    }

    #[test]
    fn pages_of_both_come_in_the_order_of_their_addresses() {
        for size in PAGE_SIZES {
            // Pages 2 and 3, and 9, are CRIU's; 3 was copied as well, and some ranges come twice.
            let criu: Vec<u8> = [102, 103, 109].iter().flat_map(|page| vec![*page; size as usize]).collect();
            let present =
                vec![4 * size..6 * size, 3 * size..5 * size, 12 * size..13 * size, 4 * size..5 * size];
            let copies = store(size, &present);
            let (merged_list, merged) =
                merge(&list(size, &[(2, 2), (9, 1)]), CriuImage::Kept(criu), present, copies, None).unwrap();
            assert_eq!(merged_list, {
                let mut expected = list(size, &[(2, 2)]);
                encode(&mut expected, 4 * size, 2, PRESENT);
                expected.extend(&list(size, &[(9, 1)])[page_list::empty(1).len()..]);
                encode(&mut expected, 12 * size, 1, PRESENT);
                expected
            });
            let mut all = vec![0; merged.len() as usize];
            merged.read(0, &mut all);
            let firsts: Vec<u8> = all.chunks(size as usize).map(|page| page[0]).collect();
            assert_eq!(firsts, [102, 103, 4, 5, 109, 12]);
            let mut middle = vec![0; 2 * size as usize];
            merged.read(3 * size + 7, &mut middle);
            assert_eq!(middle, all[3 * size as usize + 7..][..middle.len()]);
        }
    }

    #[test]
    fn pages_that_are_in_the_base_are_known() {
        for size in PAGE_SIZES {
            // CRIU has saved one of them, and some come twice.
            let criu = vec![103; size as usize];
            let present = vec![2 * size..8 * size, 10 * size..11 * size];
            let unchanged = vec![5 * size..7 * size, 3 * size..4 * size, 3 * size..6 * size];
            let copies = store(size, &[2 * size..3 * size, 7 * size..8 * size, 10 * size..11 * size]);
            let (_, merged) =
                merge(&list(size, &[(3, 1)]), CriuImage::Kept(criu), present, copies, Some(unchanged))
                    .unwrap();
            let mut all = vec![0; merged.len() as usize];
            merged.read(0, &mut all);
            let firsts: Vec<u8> = all.chunks(size as usize).map(|page| page[0]).collect();
            assert_eq!(firsts, [2, 103, 0, 0, 0, 7, 10]);
            let known = |offset, pages| merged.known(offset, pages * size);
            assert!(merged.is_marked);
            assert_eq!(known(0, 7), [(2 * size..5 * size, Known::Base)]);
            assert_eq!(known(3 * size, 1), [(3 * size..4 * size, Known::Base)]);
            assert_eq!(known(5 * size, 9), []);
        }
    }

    #[test]
    fn pages_that_were_spilled_are_known() {
        for size in PAGE_SIZES {
            // Pages 2 to 7 were spilled, in two blocks of which the first has page 5 as it was before. Then 6 was found in the base, and 7
            // copied again.
            let written = |bytes| Block { offset: 0, stored: 0, bytes, checksum: 0 };
            let mut copies = store(size, &[]);
            copies.add_spilled(written(3 * size as u32), &[3 * size..6 * size]);
            copies.add_spilled(written(4 * size as u32), &[2 * size..3 * size, 5 * size..8 * size]);
            copies.add_in_base(&(6 * size..7 * size));
            let again = 7 * size..8 * size;
            copies.reserve(std::slice::from_ref(&again));
            for piece in copies.pieces(std::slice::from_ref(&again)) {
                // SAFETY: the only reference.
                unsafe { copies.memory(&piece) }.fill(6);
            }
            copies.set_held(&again, true);
            let present = vec![2 * size..8 * size];
            let (merged_list, mut merged) =
                merge(&list(size, &[]), CriuImage::Kept(Vec::new()), present, copies, None).unwrap();
            let mut expected = list(size, &[]);
            encode(&mut expected, 2 * size, 6, PRESENT);
            assert_eq!(merged_list, expected);
            let pages = |at: u64, count: u64| at * size..(at + count) * size;
            let spilled = |at| Known::Spilled(at * size);
            let base = (pages(4, 1), Known::Base);
            let all = [(pages(0, 1), spilled(3)), (pages(1, 2), spilled(0)), (pages(3, 1), spilled(4))];
            assert_eq!(merged.known(0, 4 * size), all);
            assert_eq!(merged.known(0, merged.len())[3..], *std::slice::from_ref(&base));
            assert_eq!(
                merged.known(2 * size, 3 * size),
                [(pages(2, 1), spilled(1)), (pages(3, 1), spilled(4)), base]
            );
            let mut content = vec![1; merged.len() as usize];
            merged.read(0, &mut content);
            let firsts: Vec<u8> = content.chunks(size as usize).map(|page| page[0]).collect();
            assert_eq!(firsts, [1, 1, 1, 1, 1, 6]);
            assert_eq!((merged.take_spilled().bytes, merged.take_spilled().bytes), (7 * size, 0));
        }
    }

    #[test]
    fn pages_of_criu_that_were_drained_follow_those_that_were_spilled() {
        for size in PAGE_SIZES {
            let mut copies = store(size, &[]);
            let block = Block { offset: 0, stored: 0, bytes: 2 * size as u32, checksum: 0 };
            copies.add_spilled(block, &[4 * size..6 * size]);
            let present = vec![4 * size..5 * size];
            let drained = CriuImage::Drained(3 * size);
            let (_, mut merged) =
                merge(&list(size, &[(2, 2), (5, 1)]), drained, present, copies, None).unwrap();
            let spilled = |page| Known::Spilled(page * size);
            let expected = [
                (0..2 * size, spilled(2)),
                (2 * size..3 * size, spilled(0)),
                (3 * size..4 * size, spilled(4)),
            ];
            assert_eq!(merged.known(0, merged.len()), expected);
            let spilled = merged.take_spilled();
            assert_eq!((spilled.bytes, spilled.drained, spilled.blocks.len()), (2 * size, 3 * size, 1));
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for size in PAGE_SIZES {
            let good = list(size, &[(1, 1)]);
            let merged = |list: &[u8], pages: usize| {
                let pages = CriuImage::Kept(vec![0; pages]);
                merge(list, pages, Vec::new(), store(size, &[]), None).is_some()
            };
            assert!(merged(&good, size as usize));
            assert!(!merged(&good, 0), "pages are missing");
            assert!(!merged(&good[..good.len() - 1], size as usize));
            let mut in_parent = list(size, &[]);
            encode(&mut in_parent, 0, 1, 1);
            assert!(!merged(&in_parent, size as usize), "its pages are in another image");
        }
    }
}
