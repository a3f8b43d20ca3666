//! CRIU's list of a process's pages (`pagemap-PID.img`) and the pages (`pages-N.img`), completed with those that pagehaul has
//! copied.

use std::ops::Range;

use super::store::PageStore;
use super::tracked::{exclude, push_joined};
use crate::checkpoint::protobuf::{Value, message, number_field, put, put_message};
use crate::units::{PAGE, Pid};

/// Bytes of an image's magic numbers.
const MAGIC: usize = 8;
/// Fields of an entry (images/pagemap.proto of CRIU): address, number of pages in 32 bits, flags, number of pages.
const ADDRESS: u64 = 1;
const COUNT: u64 = 2;
const FLAGS: u64 = 4;
const LONG_COUNT: u64 = 5;
/// `PE_PRESENT`: the pages are in the image.
const PRESENT: u64 = 1 << 2;

/// The name of the list of a process's pages.
pub(crate) fn list_name(pid: Pid) -> String {
    format!("pagemap-{pid}.img")
}

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
    let (head, mut entries) = parse(list)?;
    let length: u64 = entries.iter().map(|entry| entry.addresses.end - entry.addresses.start).sum();
    if length != pages.len() as u64 {
        return None;
    }
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
    let mut out = head.to_vec();
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

/// The magic numbers and the first message, and the entries.
fn parse(list: &[u8]) -> Option<(&[u8], Vec<Entry>)> {
    let (_, after) = message(list.get(MAGIC..)?)?;
    let (head, mut rest) = list.split_at_checked(list.len() - after.len())?;
    let (mut entries, mut in_image) = (Vec::new(), 0u64);
    while !rest.is_empty() {
        let (mut entry, after) = message(rest)?;
        rest = after;
        let (mut address, mut count, mut long_count, mut flags) = (None, None, None, PRESENT);
        while !entry.is_empty() {
            let (number, value, after) = number_field(entry)?;
            entry = after;
            match number {
                ADDRESS => address = Some(value),
                COUNT => count = Some(value),
                LONG_COUNT => long_count = Some(value),
                FLAGS => flags = value,
                _ => {}
            }
        }
        let (address, bytes) = (address?, long_count.or(count)?.checked_mul(PAGE)?);
        if flags & PRESENT == 0 || bytes == 0 {
            return None;
        }
        let addresses = address..address.checked_add(bytes)?;
        entries.push(Entry { addresses, flags, in_image: Some(in_image) });
        in_image = in_image.checked_add(bytes)?;
    }
    Some((head, entries))
}

/// Adds an entry.
fn encode(out: &mut Vec<u8>, address: u64, pages: u64, flags: u64) {
    let mut entry = Vec::new();
    // CRIU before 4.2 reads the short count only.
    let short = u64::from(u32::try_from(pages).unwrap_or(u32::MAX));
    for (number, value) in [(ADDRESS, address), (COUNT, short), (FLAGS, flags), (LONG_COUNT, pages)] {
        put(&mut entry, number, Value::Number(value));
    }
    put_message(out, &entry);
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
    use proptest::prelude::*;

    fn list(entries: &[(u64, u64)]) -> Vec<u8> {
        let mut out = vec![7; MAGIC];
        out.extend([2, 0, 0, 0, 8, 1]);
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
            expected.extend(&list(&[(9, 1)])[MAGIC + 6..]);
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

    proptest! {
        #[test]
        fn any_list_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
