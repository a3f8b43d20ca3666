//! The kernel's log buffer: records before 5.10, then a ring buffer of descriptors.

use crate::content::{Content, PAGE};
use crate::{Era, Machine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Time in nanoseconds since boot.
    pub nanoseconds: u64,
    /// Log level, 0 to 7.
    pub level: u8,
    /// `caller_id`: the PID of a task, or a CPU number with the highest bit set.
    pub caller: u32,
    pub text: &'static str,
}

/// Number of pages of a log.
pub const LOG_PAGES: u64 = 4;

/// 16 descriptors and 1,024 bytes of text: small enough that a test fills both.
const COUNT_BITS: u32 = 4;
const SIZE_BITS: u32 = 10;
/// Offsets in the log's pages.
const DESCS: usize = 0x400;
const INFOS: usize = PAGE;
const DATA: usize = 3 * PAGE;

impl Machine {
    /// Puts `messages` into a log of [`LOG_PAGES`] pages of 4 KiB from page `pfn`. Returns the messages that the log still
    /// holds: it has room for the last ones only.
    pub fn log(&mut self, pfn: u64, messages: &[Message]) -> Vec<Message> {
        let (page_bytes, start) = (self.setup.page_bytes(), pfn * self.setup.page_bytes());
        let base = self.setup.page_offset().wrapping_add(start);
        let mut bytes = vec![0; PAGE * LOG_PAGES as usize];
        let kept = if self.setup.era >= Era::V5_10 {
            self.ring(base, &mut bytes, messages)
        } else {
            self.records(base, &mut bytes, messages)
        };
        for pfn in pfn..pfn + (bytes.len() as u64).div_ceil(page_bytes) {
            self.kernel(pfn);
        }
        for (frame, bytes) in (start / PAGE as u64..).zip(bytes.as_chunks().0) {
            self.frames.insert(frame, Content::Bytes(Box::new(*bytes)));
        }
        kept
    }

    /// The printk ring buffer. `struct printk_ringbuffer` at 0, the variable `prb` behind it.
    fn ring(&mut self, base: u64, bytes: &mut [u8], messages: &[Message]) -> Vec<Message> {
        let (count, size) = (1u64 << COUNT_BITS, 1u64 << SIZE_BITS);
        // IDs and positions start shortly before they wrap.
        let first_id = (1u64 << 62) - 3;
        let mut position = size - 120;
        let mut written: Vec<(u64, u64, u64, Message)> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let id = first_id.wrapping_add(index as u64) & ((1 << 62) - 1);
            let length = (8 + message.text.len() as u64).next_multiple_of(8);
            let (begin, mut next) = (position, position + length);
            let mut at = begin % size;
            // A block that would cross the end starts at the beginning of the next lap.
            if at + length > size {
                next = (begin / size + 1) * size + length;
                at = 0;
            }
            put(bytes, DATA + at as usize, &id.to_le_bytes());
            put(bytes, DATA + at as usize + 8, message.text.as_bytes());
            let slot = (id % count) as usize;
            let state = id | 2 << 62;
            for (field, word) in [state, begin, next].into_iter().enumerate() {
                put(bytes, DESCS + slot * 24 + field * 8, &word.to_le_bytes());
            }
            let info = INFOS + slot * 88;
            put(bytes, info, &(index as u64).to_le_bytes());
            put(bytes, info + 8, &message.nanoseconds.to_le_bytes());
            put(bytes, info + 16, &(message.text.len() as u16).to_le_bytes());
            put(bytes, info + 18, &[0, message.level << 5]);
            put(bytes, info + 20, &message.caller.to_le_bytes());
            written.push((id, begin, next, *message));
            position = next;
        }
        // Overwritten messages are gone.
        let oldest = position.saturating_sub(size);
        let room = written.len().saturating_sub(count as usize);
        let kept: Vec<_> =
            written.split_off(room).into_iter().filter(|(_, begin, _, _)| *begin >= oldest).collect();
        let (tail, head) = match (kept.first(), kept.last()) {
            (Some(first), Some(last)) => (first.0, last.0),
            _ => (first_id, first_id),
        };
        put(bytes, 0, &COUNT_BITS.to_le_bytes());
        for (at, word) in [
            (8, base + DESCS as u64),
            (16, base + INFOS as u64),
            (24, head),
            (32, tail),
            (56, base + DATA as u64),
            (0x100, base),
        ] {
            put(bytes, at, &word.to_le_bytes());
        }
        put(bytes, 48, &SIZE_BITS.to_le_bytes());
        self.info("SYMBOL(prb)", format!("{:x}", base + 0x100));
        self.info("SYMBOL(printk_rb_static)", format!("{base:x}"));
        for (key, value) in [
            ("OFFSET(printk_ringbuffer.desc_ring)", 0),
            ("OFFSET(printk_ringbuffer.text_data_ring)", 48),
            ("OFFSET(prb_desc_ring.count_bits)", 0),
            ("OFFSET(prb_desc_ring.descs)", 8),
            ("OFFSET(prb_desc_ring.infos)", 16),
            ("OFFSET(prb_desc_ring.head_id)", 24),
            ("OFFSET(prb_desc_ring.tail_id)", 32),
            ("SIZE(prb_desc)", 24),
            ("OFFSET(prb_desc.state_var)", 0),
            ("OFFSET(prb_desc.text_blk_lpos)", 8),
            ("OFFSET(prb_data_blk_lpos.begin)", 0),
            ("OFFSET(prb_data_blk_lpos.next)", 8),
            ("SIZE(printk_info)", 88),
            ("OFFSET(printk_info.seq)", 0),
            ("OFFSET(printk_info.ts_nsec)", 8),
            ("OFFSET(printk_info.text_len)", 16),
            ("OFFSET(printk_info.caller_id)", 20),
            ("OFFSET(printk_info.dev_info)", 24),
            ("OFFSET(dev_printk_info.subsystem)", 0),
            ("LENGTH(printk_info_subsystem)", 16),
            ("OFFSET(dev_printk_info.device)", 16),
            ("LENGTH(printk_info_device)", 48),
            ("OFFSET(prb_data_ring.size_bits)", 0),
            ("OFFSET(prb_data_ring.data)", 8),
            ("OFFSET(atomic_long_t.counter)", 0),
        ] {
            self.info(key, value);
        }
        kept.into_iter().map(|(_, _, _, message)| message).collect()
    }

    /// The log buffer of records. Its variables are at the start of the first page.
    fn records(&mut self, base: u64, bytes: &mut [u8], messages: &[Message]) -> Vec<Message> {
        const HEADER: usize = 16;
        let size = 1usize << SIZE_BITS;
        let mut at = 0;
        let mut kept: Vec<(usize, Message)> = Vec::new();
        let mut lap = 0;
        for message in messages {
            let length = (HEADER + message.text.len()).next_multiple_of(8);
            // There is always room for the header of length 0 that continues at the start.
            if at + length + HEADER > size {
                put(bytes, DATA + at, &[0; HEADER]);
                (at, lap) = (0, lap + 1);
            }
            // Overwritten messages are gone. Room for a header stays free, to distinguish full from empty.
            kept.retain(|(start, _)| lap == 0 || *start >= at + length + HEADER || *start < at);
            put(bytes, DATA + at, &message.nanoseconds.to_le_bytes());
            put(bytes, DATA + at + 8, &(length as u16).to_le_bytes());
            put(bytes, DATA + at + 10, &(message.text.len() as u16).to_le_bytes());
            put(bytes, DATA + at + 12, &[0, 0, 0, message.level << 5]);
            put(bytes, DATA + at + HEADER, message.text.as_bytes());
            kept.push((at, *message));
            at += length;
        }
        let first = kept.first().map_or(0, |(start, _)| *start);
        put(bytes, 0, &(base + DATA as u64).to_le_bytes());
        for (place, value) in [(8, size), (12, first), (16, at)] {
            put(bytes, place, &(value as u32).to_le_bytes());
        }
        for (name, place) in [("log_buf", 0), ("log_buf_len", 8), ("log_first_idx", 12), ("log_next_idx", 16)]
        {
            self.info(&format!("SYMBOL({name})"), format!("{:x}", base + place));
        }
        for (key, value) in [
            ("SIZE(printk_log)", HEADER),
            ("OFFSET(printk_log.ts_nsec)", 0),
            ("OFFSET(printk_log.len)", 8),
            ("OFFSET(printk_log.text_len)", 10),
            ("OFFSET(printk_log.dict_len)", 12),
        ] {
            self.info(key, value);
        }
        kept.into_iter().map(|(_, message)| message).collect()
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
