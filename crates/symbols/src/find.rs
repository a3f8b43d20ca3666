//! Where kallsyms' tables are, by VMCOREINFO.

use std::ops::Range;

use pagehaul_kernel::{ReadVirtual, VmcoreInfo};

use crate::encoding::{TOKENS, Tokens};
use crate::error::SymbolError;
use crate::tables::{Addresses, LostNames, MAX_SYMBOLS, PER_MARKER, Tables, is_lost};

/// Bytes of all names; 3.5 MB for 187,000 symbols.
pub(crate) const MAX_NAMES: usize = 64 << 20;
/// Bytes that are lost together, of a page of any size.
const PAGE: usize = 4096;
/// Bytes of the token table; 1,000 in practice. The index has 16 bits.
const TOKEN_TABLE: usize = 1 << 16;

/// Returns the tables, or nothing if VMCOREINFO does not export them.
pub(crate) fn by_vmcoreinfo(
    info: &VmcoreInfo,
    memory: &dyn ReadVirtual,
) -> Option<Result<Tables, SymbolError>> {
    let names = info.symbol("kallsyms_names")?;
    let count = info.symbol("kallsyms_num_syms")?;
    let token_table = info.symbol("kallsyms_token_table")?;
    let token_index = info.symbol("kallsyms_token_index")?;
    Some(read(info, memory, [names, count, token_table, token_index]))
}

fn read(
    info: &VmcoreInfo,
    memory: &dyn ReadVirtual,
    [names, count, token_table, token_index]: [u64; 4],
) -> Result<Tables, SymbolError> {
    // The names end where the next table starts: before 6.4 (404bad70fcf7) and after, tokens follow.
    let room = token_table.checked_sub(names).map_or(MAX_NAMES, |room| room.min(MAX_NAMES as u64) as usize);
    let range = |start: u64, bytes: usize| start..start.saturating_add(bytes as u64);
    let mut ranges = vec![
        range(count, 4),
        range(token_index, 2 * TOKENS),
        range(token_table, TOKEN_TABLE),
        range(names, room),
    ];
    ranges.extend(info.symbol("kallsyms_relative_base").map(|base| range(base, 8)));
    // An offset takes 4 bytes, a name about 10.
    ranges.extend(info.symbol("kallsyms_offsets").map(|offsets| range(offsets, room / 5 * 2)));
    memory.will_need(&ranges);
    let unreadable = |table| move |source| SymbolError::Unreadable { table, source };
    let count_at = count;
    let count = memory.u32(count).map_err(unreadable("kallsyms_num_syms"))?;
    if count == 0 || count > MAX_SYMBOLS {
        return Err(SymbolError::Damaged { table: "kallsyms_num_syms", reason: "the number is impossible" });
    }
    let index = memory.bytes(token_index, 2 * TOKENS).map_err(unreadable("kallsyms_token_index"))?;
    let (table, _) = memory.readable_bytes(token_table, TOKEN_TABLE);
    let tokens = Tokens::new(table, &index)?;
    let count = count as usize;
    let (names, lost) = readable(memory, names, room);
    let lost = if lost.is_empty() { None } else { Some(lost_names(&names, count, lost)?) };
    let column = |at, width: usize| memory.bytes(at, count * width).map_err(unreadable("kallsyms_offsets"));
    let addresses = match (info.symbol("kallsyms_offsets"), info.symbol("kallsyms_addresses")) {
        (Some(at), _) => {
            let base = match info.symbol("kallsyms_relative_base") {
                Some(base) => Some(memory.u64(base).map_err(unreadable("kallsyms_relative_base"))?),
                None => None,
            };
            let (bytes, lost) = readable(memory, at, 4 * count);
            Addresses::Offsets { bytes, at, base, lost }
        }
        (None, Some(at)) => Addresses::Absolute(column(at, 8)?),
        (None, None) => return Err(SymbolError::NotFound),
    };
    let extent = addresses.extent(count_at, token_index);
    Ok(Tables { count, names, lost, tokens, addresses, extent })
}

/// Zeros in a row that no table of kallsyms has.
const ZEROS: usize = 256;

/// Returns bytes of a table, with zeros in place of those that cannot be read, and where these are. What became zeros before, as where a
/// damaged dump was converted to ELF, is lost as well.
pub(crate) fn readable(memory: &dyn ReadVirtual, start: u64, len: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let (bytes, lost) = memory.readable_bytes(start, len);
    let mut gaps: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < len {
        let from = start.saturating_add(at as u64);
        let end = len.min(at + PAGE - from as usize % PAGE);
        let is_zero =
            end - at >= ZEROS && bytes.get(at..end).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
        if is_zero || lost > 0 && memory.bytes(from, end - at).is_err() {
            match gaps.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => gaps.push(at..end),
            }
        }
        at = end;
    }
    (bytes, gaps)
}

/// Finds the markers of names that are lost in part. They lie between the names and the tokens, but for 6.2 and 6.3, where
/// `kallsyms_seqs_of_names` follows them (60443c88f3a8, 19bd8981dc2e).
fn lost_names(names: &[u8], count: usize, lost: Vec<Range<usize>>) -> Result<LostNames, SymbolError> {
    let missing = SymbolError::Damaged { table: "kallsyms_names", reason: "pages of it are missing" };
    let len = count.div_ceil(PER_MARKER);
    // At most 7 bytes of padding.
    let found = (0..8).step_by(4).find_map(|padding| {
        let end = (names.len() & !3).checked_sub(padding)?;
        let start = end.checked_sub(4 * len)?;
        if is_lost(&lost, &(start..end)) {
            return None;
        }
        let words = names.get(start..end)?.as_chunks::<4>().0;
        let markers: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let ascend = markers.is_sorted_by(|before, next| before < next);
        let fits = markers.last().is_some_and(|last| (*last as usize) < start);
        (markers.first() == Some(&0) && ascend && fits).then_some(markers)
    });
    found.map(|markers| LostNames { bytes: lost, markers }).ok_or(missing)
}
