//! Symbols and unwind tables: kallsyms with absolute addresses, ORC of 6.4.

/// Bytes of a function.
pub(super) const FUNCTION: u64 = 0x100;

/// Returns the tables of kallsyms for symbols in ascending order, with the names that VMCOREINFO gives their addresses.
pub(super) fn kallsyms(symbols: &[(u64, String)]) -> Vec<(&'static str, Vec<u8>)> {
    let mut names = Vec::new();
    for (_, name) in symbols {
        assert!(name.len() < 127, "{name}");
        names.push(name.len() as u8 + 1);
        names.push(b't');
        names.extend(name.bytes());
    }
    let mut table = Vec::new();
    let mut index = Vec::new();
    for token in 0..=255_u8 {
        index.extend((table.len() as u16).to_le_bytes());
        // Each token is a character.
        table.extend(token.is_ascii_graphic().then_some(token));
        table.push(0);
    }
    vec![
        ("kallsyms_addresses", symbols.iter().flat_map(|(address, _)| address.to_le_bytes()).collect()),
        ("kallsyms_num_syms", (symbols.len() as u32).to_le_bytes().to_vec()),
        ("kallsyms_names", names),
        ("kallsyms_token_table", table),
        ("kallsyms_token_index", index),
    ]
}

/// Returns a kernel image at `code`, of this many functions of 256 bytes called `function_0` and so on, with the tables of kallsyms
/// behind them; and the lines of VMCOREINFO that a reader of these tables needs.
pub fn numbered_functions(code: u64, functions: u64) -> (Vec<u8>, String) {
    let text = FUNCTION * functions;
    let mut symbols: Vec<(u64, String)> =
        (0..functions).map(|number| (code + FUNCTION * number, format!("function_{number}"))).collect();
    symbols.extend(
        [("_stext", 0), ("_etext", text), ("_end", 2 * text)].map(|(name, at)| (code + at, name.into())),
    );
    symbols.sort();
    let mut keys = format!("SYMBOL(_stext)={code:x}\n");
    let mut image = vec![0; text as usize];
    for (name, bytes) in kallsyms(&symbols) {
        keys += &format!("SYMBOL({name})={:x}\n", code + image.len() as u64);
        image.extend(bytes);
        image.resize(image.len().next_multiple_of(8), 0);
    }
    // Readers read the tables by pages.
    image.resize(image.len() + 0x2_0000, 0);
    (image, keys)
}

/// The first bytes of `.orc_header` (6.4).
pub(super) const ORC_HEADER: [u8; 20] =
    [0xfe, 0x5d, 0x32, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The addresses of ORC entries, which lie at `place`, and the entries. Each function has a frame of one word below the return
/// address, the last one has no caller.
pub(super) fn orc(place: u64, functions: &[u64]) -> (Vec<u8>, Vec<u8>) {
    const CALL: u16 = 2 << 8 | 5;
    const END: u16 = 1 << 8;
    let mut addresses = Vec::new();
    let mut entries = Vec::new();
    for (at, function) in functions.iter().enumerate() {
        let offset = function.wrapping_sub(place + 4 * at as u64) as u32;
        addresses.extend(offset.to_le_bytes());
        let last = at + 1 == functions.len();
        entries.extend(if last { [0; 4] } else { [16, 0, 0, 0] });
        entries.extend(if last { END } else { CALL }.to_le_bytes());
    }
    (addresses, entries)
}
