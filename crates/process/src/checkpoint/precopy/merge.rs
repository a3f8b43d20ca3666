//! CRIU's list of a process's pages (`pagemap-PID.img`) and the pages (`pages-N.img`), completed with those that pagehaul has
//! copied.

use std::ops::Range;

use super::store::PageStore;
use super::tracked::{exclude, push_joined};
use crate::checkpoint::page_list::{PRESENT, PageList, encode};
use crate::units::PAGE;

/// All pages of a process.
pub(crate) struct Merged {
    parts: Vec<Part>,
    store: PageStore,
    /// CRIU's image.
    pages: Vec<u8>,
}

struct Part {
    /// Where it begins in the merged image.
    start: u64,
    addresses: Range<u64>,
    /// Where it begins in CRIU's image; none for a copy of pagehaul's.
    in_image: Option<u64>,
}

struct Entry {
    addresses: Range<u64>,
    flags: u64,
    in_image: Option<u64>,
}

/// Merges CRIU's images with the pages that are `present` and held in `store`. Returns the list, and the pages. None if the
/// list is not as CRIU 4 writes it.
pub(super) fn merge(
    list: &[u8],
    pages: Vec<u8>,
    mut present: Vec<Range<u64>>,
    store: PageStore,
) -> Option<(Vec<u8>, Merged)> {
    let list = PageList::parse(list)?;
    if list.bytes() != pages.len() as u64 {
        return None;
    }
    let mut entries: Vec<Entry> = list
        .entries
        .into_iter()
        .map(|entry| Entry { addresses: entry.addresses, flags: entry.flags, in_image: Some(entry.start) })
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
    let copied = copied.into_iter();
    entries.extend(copied.map(|addresses| Entry { addresses, flags: PRESENT, in_image: None }));
    entries.sort_by_key(|entry| entry.addresses.start);
    let mut out = list.head.to_vec();
    let mut parts = Vec::with_capacity(entries.len());
    let mut start = 0;
    for Entry { addresses, flags, in_image } in entries {
        let bytes = addresses.end - addresses.start;
        encode(&mut out, addresses.start, bytes / PAGE, flags);
        parts.push(Part { start, addresses, in_image });
        start += bytes;
    }
    Some((out, Merged { parts, store, pages }))
}

impl Merged {
    /// Bytes of the image.
    pub(crate) fn len(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.start + last.addresses.end - last.addresses.start)
    }

    /// Copies a part of the image, which begins at `offset`, to `buffer`.
    pub(crate) fn read(&self, mut offset: u64, mut buffer: &mut [u8]) {
        let first = self.parts.partition_point(|part| part.start <= offset).saturating_sub(1);
        for part in self.parts.iter().skip(first) {
            let into = offset - part.start;
            let length = (part.addresses.end - part.addresses.start - into).min(buffer.len() as u64);
            let (now, later) = buffer.split_at_mut(length as usize);
            match part.in_image {
                Some(start) => {
                    let start = (start + into) as usize;
                    now.copy_from_slice(self.pages.get(start..start + now.len()).unwrap_or_default());
                }
                None => self.store.read(part.addresses.start + into, now),
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
    use crate::checkpoint::page_list;

    fn list(entries: &[(u64, u64)]) -> Vec<u8> {
        let mut out = page_list::empty(1);
        entries.iter().for_each(|(page, count)| encode(&mut out, page * PAGE, *count, PRESENT | 2));
        out
    }

    fn store(ranges: &[Range<u64>]) -> PageStore {
        let mut store = PageStore::new(Room::new(1 << 20).unwrap());
        store.reserve(ranges).unwrap();
        for piece in store.pieces(ranges) {
            // SAFETY: the only reference.
            let memory = unsafe { store.memory(&piece) };
            for (page, bytes) in (piece.addresses.start / PAGE..).zip(memory.chunks_mut(PAGE as usize)) {
                bytes.fill(page as u8);
            }
        }
        store
    }

    #[test]
    fn pages_of_both_come_in_the_order_of_their_addresses() {
        // Pages 2 and 3, and 9, are CRIU's; 3 was copied as well, and some ranges come twice.
        let criu: Vec<u8> = [102, 103, 109].iter().flat_map(|page| vec![*page; PAGE as usize]).collect();
        let present = vec![4 * PAGE..6 * PAGE, 3 * PAGE..5 * PAGE, 12 * PAGE..13 * PAGE, 4 * PAGE..5 * PAGE];
        let copies = store(&present);
        let (merged_list, merged) = merge(&list(&[(2, 2), (9, 1)]), criu, present, copies).unwrap();
        assert_eq!(merged_list, {
            let mut expected = list(&[(2, 2)]);
            encode(&mut expected, 4 * PAGE, 2, PRESENT);
            expected.extend(&list(&[(9, 1)])[page_list::empty(1).len()..]);
            encode(&mut expected, 12 * PAGE, 1, PRESENT);
            expected
        });
        let mut all = vec![0; merged.len() as usize];
        merged.read(0, &mut all);
        let firsts: Vec<u8> = all.chunks(PAGE as usize).map(|page| page[0]).collect();
        assert_eq!(firsts, [102, 103, 4, 5, 109, 12]);
        let mut middle = vec![0; 2 * PAGE as usize];
        merged.read(3 * PAGE + 7, &mut middle);
        assert_eq!(middle, all[3 * PAGE as usize + 7..][..middle.len()]);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let good = list(&[(1, 1)]);
        let merged =
            |list: &[u8], pages: usize| merge(list, vec![0; pages], Vec::new(), store(&[])).is_some();
        assert!(merged(&good, PAGE as usize));
        assert!(!merged(&good, 0), "pages are missing");
        assert!(!merged(&good[..good.len() - 1], PAGE as usize));
        let mut in_parent = list(&[]);
        encode(&mut in_parent, 0, 1, 1);
        assert!(!merged(&in_parent, PAGE as usize), "its pages are in another image");
    }
}
