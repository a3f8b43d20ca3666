//! The printk ring buffer (`kernel/printk/printk_ringbuffer.h`): an array of descriptors, one of
//! `struct printk_info`, and a ring of text blocks.

use std::ops::Range;

use super::{Caller, KernelLog, MAX_TEXT, Reader, Record, decoded, field, structure, text};
use crate::error::{KernelError, TranslateError};
use pagehaul_machine::InfoError;

/// The highest two bits of a descriptor's state variable are its state, the others its ID.
const STATE_SHIFT: u32 = 62;
/// Committed; its writer may reopen it.
const COMMITTED: u64 = 1;
/// Finalized.
const FINALIZED: u64 = 2;
/// log2 of the most descriptors of a ring: a log of 2 GiB, the largest possible, has 2^26.
const MAX_COUNT_BITS: u32 = 26;
/// 2 GiB.
const MAX_SIZE_BITS: u32 = 31;
/// Each block begins with the ID of its record.
const ID_BYTES: u64 = 8;

/// Addresses and sizes of the parts, read once.
struct Ring {
    count: u64,
    descs: u64,
    infos: u64,
    data: u64,
    size_bits: u32,
    desc_size: u64,
    state: u64,
    begin: u64,
    next: u64,
    info_size: u64,
    info: InfoFields,
}

/// Offsets in `struct printk_info`.
struct InfoFields {
    sequence: u64,
    nanoseconds: u64,
    text_len: u64,
    caller: u64,
    device: u64,
    subsystem_name: (u64, u64),
    device_name: (u64, u64),
}

pub(super) fn read(source: &mut Reader<'_>) -> Result<KernelLog, KernelError> {
    let (ring, tail, head) = {
        let in_use = ring_in_use(source)?;
        find(source, in_use)?
    };
    let mut log = KernelLog::default();
    // IDs count on and wrap in 62 bits; there are never more of them than descriptors.
    let ids = 1u64 << STATE_SHIFT;
    let span = (head.wrapping_sub(tail) & (ids - 1)) + 1;
    let span = span.min(ring.count);
    ring.announce(source, tail, span);
    let mut step = 0;
    while step < span {
        if source.left == 0 {
            log.damaged += span - step;
            break;
        }
        let id = tail.wrapping_add(step) & (ids - 1);
        step += 1;
        match ring.record(source, id) {
            Ok(Some(record)) => log.records.push(record),
            Ok(None) => {}
            Err(Bad::Inconsistent) => log.damaged += 1,
            Err(Bad::Unreadable { alike }) => {
                let alike = alike.min(span - step + 1);
                log.damaged += alike;
                step += alike - 1;
            }
        }
    }
    Ok(log)
}

/// Returns the virtual addresses of the ring of text blocks, without the ID that each block of a record begins with, and those
/// of the first buffer if that is another one: `setup_log_buf` (kernel/printk/printk.c) copies the log into a larger one, with
/// `log_buf_len=` or many possible CPUs, and leaves the text in the first.
pub(super) fn text_places(source: &mut Reader<'_>) -> Result<Vec<Range<u64>>, KernelError> {
    let in_use = ring_in_use(source)?;
    let (ring, tail, head) = find(source, in_use)?;
    let first = source.needed(source.info.symbol("printk_rb_static"), "SYMBOL(printk_rb_static)")?;
    let left_behind = match first == in_use {
        true => None,
        false => {
            Some(find(source, first)?.0).map(|ring| ring.data..ring.data.wrapping_add(1 << ring.size_bits))
        }
    };
    let ids = 1u64 << STATE_SHIFT;
    let span = ((head.wrapping_sub(tail) & (ids - 1)) + 1).min(ring.count);
    let mut starts: Vec<u64> = Vec::new();
    for step in 0..span {
        let id = tail.wrapping_add(step) & (ids - 1);
        let field = |source: &mut Reader<'_>, at: u64| {
            source.u64(ring.descs.wrapping_add(id % ring.count * ring.desc_size).wrapping_add(at))
        };
        let (Ok(begin), Ok(next)) = (field(source, ring.begin), field(source, ring.next)) else { continue };
        // Those without text have odd positions.
        if begin & 1 == 0 || next & 1 == 0 {
            starts.extend(ring.extent(begin, next).map(|(start, _)| start));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let mut places = Vec::new();
    let mut from = 0;
    for start in starts {
        if start > from {
            places.push(from..start);
        }
        from = from.max(start + ID_BYTES);
    }
    places.push(from..1u64 << ring.size_bits);
    places.retain(|place| place.start < place.end);
    Ok(places
        .into_iter()
        .map(|place| ring.data.wrapping_add(place.start)..ring.data.wrapping_add(place.end))
        .chain(left_behind)
        .collect())
}

/// Why there is no record.
enum Bad {
    /// It contradicts itself, or its info or text is unreadable.
    Inconsistent,
    /// Its descriptor and those after it in the same page are unreadable: this many in all.
    Unreadable { alike: u64 },
}

impl From<TranslateError> for Bad {
    fn from(_: TranslateError) -> Self {
        Self::Inconsistent
    }
}

/// The address of the `struct printk_ringbuffer` that is in use.
fn ring_in_use(source: &mut Reader<'_>) -> Result<u64, KernelError> {
    let symbol = source.needed(source.info.symbol("prb"), "SYMBOL(prb)")?;
    source.u64(symbol).map_err(structure("printk ring buffer"))
}

/// Returns the ring at an address, and the IDs of its oldest and newest record.
fn find(source: &mut Reader<'_>, ring_at: u64) -> Result<(Ring, u64, u64), KernelError> {
    let counter = source.info.offset("atomic_long_t.counter").unwrap_or(0);
    let descs_at = ring_at.wrapping_add(source.offset("printk_ringbuffer.desc_ring")?);
    let data_at = ring_at.wrapping_add(source.offset("printk_ringbuffer.text_data_ring")?);
    let count_bits_at = descs_at.wrapping_add(source.offset("prb_desc_ring.count_bits")?);
    let size_bits_at = data_at.wrapping_add(source.offset("prb_data_ring.size_bits")?);
    let bad = |key: &str, value: u32| InfoError::BadValue {
        key: key.into(),
        value: value.to_string(),
        expected: "the kernel's log has no such size",
    };
    let count_bits = source.u32(count_bits_at).map_err(structure("printk ring buffer"))?;
    if count_bits > MAX_COUNT_BITS {
        return Err(bad("prb_desc_ring.count_bits", count_bits).into());
    }
    let size_bits = source.u32(size_bits_at).map_err(structure("printk ring buffer"))?;
    if size_bits > MAX_SIZE_BITS {
        return Err(bad("prb_data_ring.size_bits", size_bits).into());
    }
    let mut pointer = |base: u64, name: &'static str, extra: u64| {
        let at = base.wrapping_add(source.offset(name)?).wrapping_add(extra);
        source.u64(at).map_err(structure("printk ring buffer"))
    };
    let descs = pointer(descs_at, "prb_desc_ring.descs", 0)?;
    let infos = pointer(descs_at, "prb_desc_ring.infos", 0)?;
    let head = pointer(descs_at, "prb_desc_ring.head_id", counter)?;
    let tail = pointer(descs_at, "prb_desc_ring.tail_id", counter)?;
    let data = pointer(data_at, "prb_data_ring.data", 0)?;
    let block = source.offset("prb_desc.text_blk_lpos")?;
    let length = |name| source.info.length(name).unwrap_or(0).min(256);
    let ring = Ring {
        count: 1 << count_bits,
        descs,
        infos,
        data,
        size_bits,
        desc_size: source.size("prb_desc")?,
        state: source.offset("prb_desc.state_var")? + counter,
        begin: block + source.offset("prb_data_blk_lpos.begin")?,
        next: block + source.offset("prb_data_blk_lpos.next")?,
        info_size: source.size("printk_info")?,
        info: InfoFields {
            sequence: source.offset("printk_info.seq")?,
            nanoseconds: source.offset("printk_info.ts_nsec")?,
            text_len: source.offset("printk_info.text_len")?,
            caller: source.offset("printk_info.caller_id")?,
            device: source.info.offset("printk_info.dev_info").unwrap_or(0),
            subsystem_name: (
                source.info.offset("dev_printk_info.subsystem").unwrap_or(0),
                length("printk_info_subsystem"),
            ),
            device_name: (
                source.info.offset("dev_printk_info.device").unwrap_or(0),
                length("printk_info_device"),
            ),
        },
    };
    Ok((ring, tail, head))
}

impl Ring {
    /// Announces descriptors and infos of `span` records from `tail` on, then their text.
    fn announce(&self, source: &mut Reader<'_>, tail: u64, span: u64) {
        if !source.view.is_remote() {
            return;
        }
        let first = tail % self.count;
        let end = first.saturating_add(span);
        let elements = |array: u64, size: u64| {
            // Those behind the end of the array are at its start.
            [first..end.min(self.count), 0..end.saturating_sub(self.count)]
                .map(|range| {
                    [range.start, range.end].map(|index| array.saturating_add(index.saturating_mul(size)))
                })
                .map(|[start, end]| start..end)
        };
        source.will_need(
            &[elements(self.descs, self.desc_size), elements(self.infos, self.info_size)].concat(),
        );
        let size = 1u64 << self.size_bits;
        let position = |source: &mut Reader<'_>, id: u64, field: u64| {
            let at = self.descs.wrapping_add(id % self.count * self.desc_size).wrapping_add(field);
            Some(source.u64(at).ok()? % size)
        };
        let begin = position(source, tail, self.begin);
        let end = position(source, tail.wrapping_add(span - 1), self.next);
        let Some((begin, end)) = begin.zip(end) else { return };
        let text = if begin < end { [begin..end, 0..0] } else { [begin..size, 0..end] };
        source.will_need(
            &text.map(|range| self.data.saturating_add(range.start)..self.data.saturating_add(range.end)),
        );
    }

    /// Returns the record with this ID; `None` if its writer did not finish it or discarded it, or if it has no text block.
    fn record(&self, source: &mut Reader<'_>, id: u64) -> Result<Option<Record>, Bad> {
        let index = id % self.count;
        let mut desc = vec![0; self.desc_size as usize];
        let at = self.descs.wrapping_add(index * self.desc_size);
        if source.bytes(at, &mut desc).is_err() {
            // Where the ring is not in the dump, one read per page is enough: it may claim 2^26 descriptors.
            let alike = (0x1000 - (at & 0xfff)).div_ceil(self.desc_size);
            return Err(Bad::Unreadable { alike: alike.min(self.count - index) });
        }
        let state = u64::from_le_bytes(field(&desc, self.state));
        if state & ((1 << STATE_SHIFT) - 1) != id {
            return Err(Bad::Inconsistent);
        }
        if !matches!(state >> STATE_SHIFT, COMMITTED | FINALIZED) {
            return Ok(None);
        }
        let begin = u64::from_le_bytes(field(&desc, self.begin));
        let next = u64::from_le_bytes(field(&desc, self.next));
        // Odd positions: a message of length 0, or one for which the ring had no room. crash and makedumpfile skip both.
        if begin & 1 == 1 && next & 1 == 1 {
            return Ok(None);
        }
        let mut info = vec![0; self.info_size as usize];
        source.bytes(self.infos.wrapping_add(index * self.info_size), &mut info)?;
        let fields = &self.info;
        let wanted = u64::from(u16::from_le_bytes(field(&info, fields.text_len)));
        let [facility] = field(&info, fields.text_len + 2);
        let [flags] = field(&info, fields.text_len + 3);
        let name = |(at, length): (u64, u64)| {
            let start = fields.device.checked_add(at).and_then(|start| usize::try_from(start).ok());
            let bytes = start.and_then(|start| info.get(start..)).unwrap_or(&[]);
            text(&bytes[..bytes.len().min(length as usize)])
        };
        let (subsystem, device) = (name(fields.subsystem_name), name(fields.device_name));
        let (text, raw) = decoded(self.text(source, id, begin, next, wanted)?);
        Ok(Some(Record {
            sequence: Some(u64::from_le_bytes(field(&info, fields.sequence))),
            nanoseconds: u64::from_le_bytes(field(&info, fields.nanoseconds)),
            // Bits of the byte after the facility: flags 5, level 3 (`struct printk_info`).
            level: flags >> 5,
            facility,
            caller: Some(Caller::new(u32::from_le_bytes(field(&info, fields.caller)))),
            text,
            raw,
            device: (!subsystem.is_empty() && fields.device != 0).then_some((subsystem, device)),
        }))
    }

    /// Returns the text of a block. Logical positions increase without end; their low bits are offsets in the ring.
    fn text(
        &self,
        source: &mut Reader<'_>,
        id: u64,
        begin: u64,
        next: u64,
        wanted: u64,
    ) -> Result<Vec<u8>, Bad> {
        let (start, end) = self.extent(begin, next).ok_or(Bad::Inconsistent)?;
        let held = end - start - ID_BYTES;
        if held > MAX_TEXT + 8 || source.u64(self.data.wrapping_add(start))? != id {
            return Err(Bad::Inconsistent);
        }
        let mut bytes = vec![0; wanted.min(held) as usize];
        source.bytes(self.data.wrapping_add(start + ID_BYTES), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns where in the ring a block is, which has room for its ID.
    fn extent(&self, begin: u64, next: u64) -> Option<(u64, u64)> {
        let mask = (1u64 << self.size_bits) - 1;
        let (start, end) = (begin & mask, next & mask);
        // A block that does not fit before the end of the ring starts at its beginning. One that ends exactly there does not.
        let wraps = begin >> self.size_bits != next >> self.size_bits && end != 0;
        let (start, end) = match (wraps, end) {
            (true, _) => (0, end),
            (false, 0) => (start, mask + 1),
            (false, _) => (start, end),
        };
        (end >= start + ID_BYTES).then_some((start, end))
    }
}
