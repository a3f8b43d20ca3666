//! Symbol table of a module: how many bytes are ELF symbols; the rest are their names.

use pagehaul_symbols::ModuleSymbols;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&[low, high], rest)) = data.split_first_chunk::<2>() else { return };
    let Some((symbols, strings)) = rest.split_at_checked(u16::from_le_bytes([low, high]).into()) else {
        return;
    };
    let table = ModuleSymbols::parse("module".into(), vec![0..0x1000, 0x1_0000..u64::MAX], symbols, strings);
    for address in (0..0x1_2000).step_by(0x80).chain([u64::MAX - 1, u64::MAX]) {
        let Some((start, size, name)) = table.containing(address) else { continue };
        assert!(start <= address && table.contains(address) && !name.is_empty());
        assert!(start.checked_add(size).is_some());
        assert!(table.address(name).is_some());
    }
}
