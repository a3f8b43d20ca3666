//! Kallsyms by addresses and by search: the first 24 bytes place the tables, the rest is the kernel image.

use pagehaul_kernel::{ReadVirtual, TranslateError, VmcoreInfo};
use pagehaul_symbols::Kallsyms;

const STEXT: u64 = 0xffff_ffff_8100_0000;

struct Memory<'a>(&'a [u8]);

impl ReadVirtual for Memory<'_> {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let start = vaddr.checked_sub(STEXT).ok_or(TranslateError::NotCanonical { vaddr })? as usize;
        let end = start.saturating_add(buf.len());
        let bytes = self.0.get(start..end).ok_or(TranslateError::NotCanonical { vaddr })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((places, image)) = data.split_first_chunk::<24>() else { return };
    let names = ["names", "num_syms", "token_table", "token_index", "offsets", "relative_base"];
    let mut keys = format!("SYMBOL(_stext)={STEXT:x}\n");
    for (name, place) in names.iter().zip(places.as_chunks::<4>().0) {
        let place = u64::from(u32::from_le_bytes(*place)) % (image.len() as u64 + 1);
        keys += &format!("SYMBOL(kallsyms_{name})={:x}\n", STEXT + place);
    }
    let memory = Memory(image);
    if let Ok(symbols) = Kallsyms::read(&VmcoreInfo::parse(keys.as_bytes()), &memory) {
        assert!(symbols.iter().count() <= symbols.len());
        let _ = (symbols.containing(STEXT + 100), symbols.address("_stext"));
    }
}
