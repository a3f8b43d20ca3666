//! Writes the vmcore of a small synthetic machine: `vmcore OUTPUT`.

use pagehaul_synth::{Content, Era, Machine};

fn main() -> std::io::Result<()> {
    let Some(output) = std::env::args_os().nth(1) else {
        eprintln!("usage: vmcore OUTPUT");
        std::process::exit(2);
    };
    let mut machine = Machine::new(Era::V6_12);
    machine.anon(0x4000).slab(0x4010, 2).fill(0x4000, Content::Text);
    machine.build().elf().write(output.as_ref())
}
