//! The log buffer of kernels before 5.10: one record after the other, each with its length, in a ring.

use super::{Caller, KernelLog, Reader, Record, decoded, field, structure};
use crate::error::KernelError;
use pagehaul_machine::InfoError;

/// The largest possible buffer (`LOG_BUF_LEN_MAX`).
const MOST: u32 = 1 << 31;

/// A time of 8 bytes, three lengths of 2, facility and flags (`struct printk_log`).
const LEAST_HEADER: u64 = 16;

pub(super) fn read(source: &mut Reader<'_>) -> Result<KernelLog, KernelError> {
    const WHAT: &str = "log buffer";
    let header = source.size("printk_log")?;
    if header < LEAST_HEADER {
        return Err(InfoError::BadValue {
            key: "SIZE(printk_log)".into(),
            value: header.to_string(),
            expected: "the header of a record has at least 16 bytes",
        }
        .into());
    }
    let (nanoseconds, length) = (source.offset("printk_log.ts_nsec")?, source.offset("printk_log.len")?);
    let (text_len, dict_len) = (source.offset("printk_log.text_len")?, source.offset("printk_log.dict_len")?);
    // 5.1 and later, with CONFIG_PRINTK_CALLER.
    let caller = source.info.offset("printk_log.caller_id");
    let pointer = |source: &mut Reader<'_>, name: &str, key| {
        let at = source.needed(source.info.symbol(name), key)?;
        source.u64(at).map_err(structure(WHAT))
    };
    let number = |source: &mut Reader<'_>, name: &str, key| {
        let at = source.needed(source.info.symbol(name), key)?;
        source.u32(at).map_err(structure(WHAT))
    };
    let buffer = pointer(source, "log_buf", "SYMBOL(log_buf)")?;
    let size = number(source, "log_buf_len", "SYMBOL(log_buf_len)")?.min(MOST);
    let first = number(source, "log_first_idx", "SYMBOL(log_first_idx)")?;
    let next = number(source, "log_next_idx", "SYMBOL(log_next_idx)")?;
    let mut log = KernelLog::default();
    let mut at = first;
    let mut wrapped = false;
    // A record is at least as long as its header, so this ends.
    while at != next || (!wrapped && first > next) {
        if u64::from(at) + header > u64::from(size) || source.left == 0 {
            log.damaged += 1;
            break;
        }
        let mut bytes = vec![0; header as usize];
        if source.bytes(buffer.wrapping_add(at.into()), &mut bytes).is_err() {
            log.damaged += 1;
            break;
        }
        let len = u16::from_le_bytes(field(&bytes, length));
        if len == 0 {
            // The rest did not fit before the end of the ring.
            if wrapped || at == 0 {
                break;
            }
            (wrapped, at) = (true, 0);
            continue;
        }
        let text_size = u16::from_le_bytes(field(&bytes, text_len));
        let dict_size = u16::from_le_bytes(field(&bytes, dict_len));
        let fits = header + u64::from(text_size) + u64::from(dict_size) <= u64::from(len)
            && u64::from(at) + u64::from(len) <= u64::from(size);
        if !fits {
            // Where the next one starts is unknown.
            log.damaged += 1;
            break;
        }
        let mut parts = vec![0; usize::from(text_size) + usize::from(dict_size)];
        if source.bytes(buffer.wrapping_add(u64::from(at) + header), &mut parts).is_ok() {
            let (text, dict) = parts.split_at(usize::from(text_size));
            let (text, raw) = decoded(text.to_vec());
            let [facility] = field(&bytes, dict_len + 2);
            let [flags] = field(&bytes, dict_len + 3);
            log.records.push(Record {
                sequence: None,
                nanoseconds: u64::from_le_bytes(field(&bytes, nanoseconds)),
                // Flags have 5 bits, the level 3 (`struct printk_log`).
                level: flags >> 5,
                facility,
                caller: caller.map(|at| Caller::new(u32::from_le_bytes(field(&bytes, at)))),
                text,
                raw,
                device: device(dict),
            });
        } else {
            log.damaged += 1;
        }
        at += u32::from(len);
    }
    Ok(log)
}

/// `SUBSYSTEM=` and `DEVICE=` of a record's dictionary, whose lines end with zeros.
fn device(dict: &[u8]) -> Option<(String, String)> {
    let value = |key: &str| {
        let lines = dict.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        lines.into_iter().find_map(|line| line.strip_prefix(key).map(str::to_owned))
    };
    Some((value("SUBSYSTEM=")?, value("DEVICE=").unwrap_or_default()))
}
