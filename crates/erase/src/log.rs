//! The text of the kernel's log. Its records stay, with their times and levels.

use pagehaul_inspect::Machine;
use pagehaul_kernel::KernelLog;
use pagehaul_physmem::PhysMemory;

use crate::collect::Collector;

pub(crate) fn find(machine: &Machine<'_>, memory: &dyn PhysMemory, out: &mut Collector<'_>) {
    match KernelLog::text_places(memory) {
        Ok(places) => places.iter().for_each(|place| out.erase("log", place.start, place.end - place.start)),
        Err(why) => out.gap(format!("the log: {why}")),
    }
    // What was last sent to a console (6.3 and later).
    if let Ok(buffers) = machine.variable("printk_shared_pbufs", "printk_buffers") {
        out.erase_object("printk_shared_pbufs", &buffers);
    }
}
