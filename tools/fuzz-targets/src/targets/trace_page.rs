//! A ring-buffer sub-buffer, of either byte order.

use pagehaul_trace::Abi;
use pagehaul_trace::ring::{SubBufferCursor, SubBufferLayout};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&kind, page)) = data.split_first() else { return };
    let long_size = if kind & 2 != 0 { 4 } else { 8 };
    let abi = Abi { big_endian: kind & 1 != 0, long_size };
    let layout = SubBufferLayout {
        abi,
        commit_offset: 8,
        data_offset: 8 + u32::from(long_size),
        sub_buffer_size: 4096,
    };
    let Ok(mut cursor) = SubBufferCursor::new(page, layout) else { return };
    cursor.missed();
    let mut end = layout.data_offset as usize;
    while let Ok(Some(record)) = cursor.next_record(page) {
        assert!(record.start >= end && record.end >= record.start && record.end <= page.len());
        end = record.end;
    }
}
