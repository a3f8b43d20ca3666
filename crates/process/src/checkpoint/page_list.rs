//! CRIU's list of a process's pages, or of those of shared memory (`pagemap-*.img`), and where they are in its image of them
//! (`pages-N.img`).

use std::ops::Range;

use super::protobuf::{Value, message, number_field, put, put_message};
use crate::units::Pid;

/// Bytes of an image's magic numbers.
const MAGIC: usize = 8;
/// Field of the head (images/pagemap.proto of CRIU): the number of the image of the pages.
const PAGES: u64 = 1;
/// Fields of an entry: address, number of pages in 32 bits, flags, number of pages.
const ADDRESS: u64 = 1;
const COUNT: u64 = 2;
const FLAGS: u64 = 4;
const LONG_COUNT: u64 = 5;
/// `PE_PRESENT`: the pages are in the image.
pub(crate) const PRESENT: u64 = 1 << 2;

/// The name of the list of a process's pages.
pub(crate) fn name(pid: Pid) -> String {
    format!("pagemap-{pid}.img")
}

/// Whether an image is a list of pages.
pub(crate) fn is_list(name: &str) -> bool {
    name.starts_with("pagemap-")
}

/// Pages of contiguous addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) addresses: Range<u64>,
    pub(crate) flags: u64,
    /// Where they begin in the image of the pages.
    pub(crate) start: u64,
}

/// A list.
pub(crate) struct PageList<'a> {
    /// The magic numbers and the first message.
    pub(crate) head: &'a [u8],
    pub(crate) entries: Vec<Entry>,
}

impl<'a> PageList<'a> {
    /// Reads a list of a machine whose pages have `page` bytes, in which CRIU counts. None if it is not as CRIU 4 writes it.
    pub(crate) fn parse(list: &'a [u8], page: u64) -> Option<Self> {
        let (_, after) = message(list.get(MAGIC..)?)?;
        let (head, mut rest) = list.split_at_checked(list.len() - after.len())?;
        let (mut entries, mut start) = (Vec::new(), 0u64);
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
            let (address, bytes) = (address?, long_count.or(count)?.checked_mul(page)?);
            if flags & PRESENT == 0 || bytes == 0 {
                return None;
            }
            let addresses = address..address.checked_add(bytes)?;
            entries.push(Entry { addresses, flags, start });
            start = start.checked_add(bytes)?;
        }
        Some(Self { head, entries })
    }

    /// Bytes of the image of the pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.last().map_or(0, |last| last.start + (last.addresses.end - last.addresses.start))
    }

    /// The name of the image of the pages.
    pub(crate) fn pages(&self) -> Option<String> {
        let (mut head, _) = message(self.head.get(MAGIC..)?)?;
        while !head.is_empty() {
            let (number, value, after) = number_field(head)?;
            if number == PAGES {
                return Some(format!("pages-{value}.img"));
            }
            head = after;
        }
        None
    }
}

/// Adds an entry to a list.
pub(crate) fn encode(out: &mut Vec<u8>, address: u64, pages: u64, flags: u64) {
    let mut entry = Vec::new();
    // CRIU before 4.2 reads the short count only.
    let short = u64::from(u32::try_from(pages).unwrap_or(u32::MAX));
    for (number, value) in [(ADDRESS, address), (COUNT, short), (FLAGS, flags), (LONG_COUNT, pages)] {
        put(&mut entry, number, Value::Number(value));
    }
    put_message(out, &entry);
}

/// An empty list, whose pages are in `pages-NUMBER.img`.
#[cfg(test)]
pub(crate) fn empty(number: u64) -> Vec<u8> {
    let (mut out, mut head) = (vec![7; MAGIC], Vec::new());
    put(&mut head, PAGES, Value::Number(number));
    put_message(&mut out, &head);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::PAGE_SIZES;
    use proptest::prelude::*;

    #[test]
    fn lists_name_their_pages_and_where_they_are() {
        for page in PAGE_SIZES {
            let mut list = empty(7);
            encode(&mut list, 5 * page, 2, PRESENT);
            encode(&mut list, 9 * page, 1, PRESENT | 2);
            let read = PageList::parse(&list, page).unwrap();
            assert_eq!(read.pages().as_deref(), Some("pages-7.img"));
            let expected = [(5 * page..7 * page, PRESENT, 0), (9 * page..10 * page, PRESENT | 2, 2 * page)];
            let expected = expected.map(|(addresses, flags, start)| Entry { addresses, flags, start });
            assert_eq!((read.entries.as_slice(), read.bytes()), (&expected[..], 3 * page));
        }
    }

    proptest! {
        #[test]
        fn any_list_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(list) = PageList::parse(&bytes, PAGE_SIZES[1]) {
                let _ = (list.pages(), list.bytes());
            }
        }
    }
}
