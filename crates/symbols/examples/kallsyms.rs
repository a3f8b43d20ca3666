//! Prints the symbols of a dump as `/proc/kallsyms` does: `kallsyms DUMP [--search]`.

use std::path::PathBuf;
use std::time::Instant;

use pagehaul_kernel::{AddressSpace, VirtualMemory};
use pagehaul_physmem::MapPolicy;
use pagehaul_symbols::Kallsyms;
use pagehaul_vmcore::Source;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dump = PathBuf::from(arguments.next().ok_or("usage: kallsyms DUMP [--search]")?);
    let source = Source::open(&dump, MapPolicy::default())?;
    let kernel = AddressSpace::discover(source.memory())?;
    let memory = VirtualMemory::new(&kernel, source.memory());
    let start = Instant::now();
    let symbols = match arguments.next() {
        Some(_) => Kallsyms::search(kernel.info().symbol("_stext").ok_or("no _stext")?, &memory)?,
        None => Kallsyms::read(kernel.info(), &memory)?,
    };
    eprintln!("{} symbols, {:?}, {:?}", symbols.len(), symbols.encoding(), start.elapsed());
    for (address, letter, name) in symbols.iter() {
        println!("{address:016x} {letter} {name}");
    }
    Ok(())
}
