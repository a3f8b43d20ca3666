//! The next return address where ORC has no entry: the first word on the stack that follows a call.

use pagehaul_kernel::ReadVirtual;
use pagehaul_symbols::Symbols;

/// Words of a stack that are searched.
const MAX_WORDS: u64 = 512;
/// Addresses whose calls are announced: one round of requests.
const MAX_ANNOUNCED: usize = 16;

/// A return address on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Address of the next word.
    pub(crate) sp: u64,
    pub(crate) return_address: u64,
    /// Words between the old stack pointer and here that point up the same stack: one may be the caller's BP.
    pub(crate) below: u64,
}

/// Returns the addresses on the stack from `sp` on that follow a call of the function at `callee`, or any call if it is
/// unknown.
pub(crate) fn candidates(
    memory: &dyn ReadVirtual,
    symbols: &Symbols,
    sp: u64,
    callee: Option<u64>,
) -> Vec<Candidate> {
    let start = sp & !7;
    announce(memory, symbols, start);
    let mut found = Vec::new();
    for word in 0..MAX_WORDS {
        let at = start.wrapping_add(8 * word);
        let Ok(value) = memory.u64(at) else { break };
        if symbols.is_text(value) && follows_call(memory, symbols, value, callee) {
            found.push(Candidate { sp: at.wrapping_add(8), return_address: value, below: start });
            // It is nearly always the first one.
            if found.len() >= 4 {
                break;
            }
        }
    }
    found
}

/// Announces what is before the first addresses of text on the stack.
fn announce(memory: &dyn ReadVirtual, symbols: &Symbols, start: u64) {
    if !memory.is_remote() {
        return;
    }
    memory.will_need(&[start..start.saturating_add(8 * MAX_WORDS)]);
    let words = (0..MAX_WORDS).map_while(|word| memory.u64(start.wrapping_add(8 * word)).ok());
    let addresses = words.filter(|word| symbols.is_text(*word)).take(MAX_ANNOUNCED);
    memory.will_need(&addresses.map(|address| address.wrapping_sub(7)..address).collect::<Vec<_>>());
}

/// Returns whether the instruction before `return_address` is a call, of `callee` if that is known.
fn follows_call(
    memory: &dyn ReadVirtual,
    symbols: &Symbols,
    return_address: u64,
    callee: Option<u64>,
) -> bool {
    let Ok(before) = memory.bytes(return_address.wrapping_sub(7), 7) else {
        // Incomplete dumps may lack text: an address inside a function may then be a return address.
        return symbols.caller(return_address).is_some_and(|name| name.offset > 5);
    };
    let direct = before.get(2..).and_then(|call| {
        let [0xe8, offset @ ..] = call else { return None };
        let offset = i32::from_le_bytes(*offset.first_chunk()?);
        Some(return_address.wrapping_add(i64::from(offset) as u64))
    });
    match (callee, direct) {
        (Some(callee), direct) => direct == Some(callee),
        (None, Some(_)) => true,
        // call *reg; call *disp8(reg); call *disp32(reg)
        (None, None) => [(5, 2), (4, 3), (1, 6)].into_iter().any(|(at, len): (usize, usize)| {
            let call = before.get(at..at + len);
            call.is_some_and(|call| {
                call.first() == Some(&0xff) && call.get(1).is_some_and(|byte| byte >> 3 & 7 == 2)
            })
        }),
    }
}
