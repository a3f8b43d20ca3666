//! Where kallsyms' tables are, by VMCOREINFO.

use pagehaul_kernel::{ReadVirtual, VmcoreInfo};

use crate::encoding::{TOKENS, Tokens};
use crate::error::SymbolError;
use crate::tables::{Addresses, MAX_SYMBOLS, Tables};

/// Bytes of all names; 3.5 MB for 187,000 symbols.
pub(crate) const MAX_NAMES: usize = 64 << 20;
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
    let (names, lost) = memory.readable_bytes(names, room);
    if lost > 0 {
        return Err(SymbolError::Damaged { table: "kallsyms_names", reason: "pages of it are missing" });
    }
    let column = |at, width: usize| memory.bytes(at, count * width).map_err(unreadable("kallsyms_offsets"));
    let addresses = match (info.symbol("kallsyms_offsets"), info.symbol("kallsyms_addresses")) {
        (Some(at), _) => {
            let base = match info.symbol("kallsyms_relative_base") {
                Some(base) => Some(memory.u64(base).map_err(unreadable("kallsyms_relative_base"))?),
                None => None,
            };
            Addresses::Offsets { bytes: column(at, 4)?, at, base }
        }
        (None, Some(at)) => Addresses::Absolute(column(at, 8)?),
        (None, None) => return Err(SymbolError::NotFound),
    };
    let extent = addresses.extent(count_at, token_index);
    Ok(Tables { count, names, tokens, addresses, extent })
}
