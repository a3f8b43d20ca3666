//! Checks bitmap 2 against the descriptors: a page's descriptor is found by counting bits, so one bit too many or too few
//! gives every later page the contents of its neighbour.

use zerocopy::{FromZeros, IntoBytes};

use super::KdumpFile;
use crate::format::PageDesc;
use crate::format::encoding::Encoding;

/// Descriptors checked from the first.
const SOME: u64 = 256;

/// Returns why pages may have each other's contents, if there is evidence.
///
/// Every writer begins the data where the descriptors end, or at the next block. So the first page must not be within the
/// table, the last descriptor must be one, and the bytes behind it must not.
pub(super) fn descriptors_do_not_fit_bitmap(dump: &KdumpFile) -> Option<String> {
    let count = dump.sections.count;
    // Incomplete dumps and truncated files have fewer descriptors than bits.
    if count == 0 || dump.is_incomplete() || dump.data_start() >= dump.file.size() {
        return None;
    }
    let first = read(dump, 0, count.min(SOME))?;
    let lowest =
        first.iter().filter_map(|desc| u64::try_from(desc.offset.get()).ok()).filter(|at| *at > 0).min()?;
    if lowest == dump.data_start() {
        return None;
    }
    let more = |what: String| {
        Some(format!(
            "bitmap 2 has {count} pages, but {what}: one of the two is damaged, and pages cannot be matched with \
             their descriptors"
        ))
    };
    let block = u64::from(dump.info.block_size);
    if lowest < dump.data_start() && dump.data_start() - lowest < block {
        return more(format!("the data begins at {lowest:#x}, within their descriptors"));
    }
    let ends = read(dump, count - 1, 2)?;
    if ends.first().is_some_and(|desc| desc.offset.get() == 0) {
        return more("the last page has no descriptor".into());
    }
    let alike =
        |desc: &PageDesc| desc.page_flags.get() == 0 && matches!(dump.encoding(desc), Encoding::Stored(_));
    match ends.get(1) {
        Some(desc) if alike(desc) => more("there is one more descriptor".into()),
        _ => None,
    }
}

/// Reads descriptors. `None` if the file does not have all of them.
pub(super) fn read(dump: &KdumpFile, first: u64, count: u64) -> Option<Vec<PageDesc>> {
    let mut descs = vec![PageDesc::new_zeroed(); count as usize];
    let offset = dump.sections.descriptors + first * PageDesc::SIZE as u64;
    dump.file.read_exact_at(offset, descs.as_mut_bytes()).ok()?;
    descs.iter_mut().for_each(|desc| dump.byte_layout.descriptor(desc));
    Some(descs)
}
