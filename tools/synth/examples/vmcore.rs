//! Writes the vmcore of a small synthetic machine: `vmcore OUTPUT [x86_64|arm64|riscv64]`.

use std::process::ExitCode;

use pagehaul_synth::{Arm64, Content, Era, Machine, Riscv64};

fn main() -> std::io::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let (output, machine) = (arguments.next(), arguments.next());
    let machine = match machine.as_ref().map_or(Some("x86_64"), |name| name.to_str()) {
        Some("x86_64") => Some((Machine::new(Era::V6_12), 0x4000)),
        Some("arm64") => Some((Machine::arm64(Era::V6_12, Arm64::V52), 0x4_4000)),
        Some("riscv64") => Some((Machine::riscv64(Era::V6_12, Riscv64::Sv57), 0x8_4000)),
        _ => None,
    };
    let (Some(output), Some((mut machine, first))) = (output, machine) else {
        eprintln!("usage: vmcore OUTPUT [x86_64|arm64|riscv64]");
        return Ok(ExitCode::from(2));
    };
    machine.anon(first).slab(first + 0x10, 2).fill(first, Content::Text).populate(first + 0x100, 0x400, 5);
    machine.build().elf().write(output.as_ref())?;
    Ok(ExitCode::SUCCESS)
}
