//! The text of the kernel's log, and names of tasks in its records. The records stay, with their times and levels.

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;
use pagehaul_kernel::KernelLog;
use pagehaul_physmem::PhysMemory;

use crate::collect::Collector;

/// Records of which names are erased, as a power of two: a log of 32 MiB has as many.
const MAX_BITS: u64 = 20;

pub(crate) fn find(machine: &Machine<'_>, memory: &dyn PhysMemory, out: &mut Collector<'_>) {
    match KernelLog::text_places(memory) {
        Ok(places) => places.iter().for_each(|place| out.erase("log", place.start, place.end - place.start)),
        Err(why) => out.gap(format!("the log: {why}")),
    }
    names(machine, out);
    // What was last sent to a console (6.3 and later).
    if let Ok(buffers) = machine.variable("printk_shared_pbufs", "printk_buffers") {
        out.erase_object("printk_shared_pbufs", &buffers);
    }
}

/// Erases the name of the task that wrote a record, of all records.
pub(crate) fn names(machine: &Machine<'_>, out: &mut Collector<'_>) {
    let outcome = of_records(machine, out);
    out.outcome("names of tasks in the log", outcome);
}

fn of_records(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let space = machine.space();
    let named = |name| space.offset_of("printk_info", name).map(|offset| (name, offset));
    // 60325c27d3cf (of 2026-02, in 7.2), with CONFIG_PRINTK_EXECUTION_CTX.
    let Ok((name, offset)) = named("comm").or_else(|_| named("msg_comm")) else { return Ok(()) };
    let ring = space.object(machine.u64("prb")?, "printk_ringbuffer")?;
    let (first, bits) = (ring.get("desc_ring.infos")?.pointer()?, ring.number("desc_ring.count_bits")?);
    let (size, length) =
        (space.size_of("printk_info")?, space.object(first, "printk_info")?.get(name)?.len());
    if bits > MAX_BITS {
        return Err(Fault::NotRead(format!(
            "the log has 2^{bits} records, of which 2^{MAX_BITS} at most can be erased"
        )));
    }
    for number in 0..1u64 << bits {
        out.erase("printk_info.comm", first.wrapping_add(number * size + offset), length);
    }
    Ok(())
}
