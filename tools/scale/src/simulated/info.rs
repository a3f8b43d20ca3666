//! VMCOREINFO of the simulated kernel, and registers of its CPUs.

use pagehaul_synth::{Era, Machine};

use super::layout::{MEM_SECTION, RELEASE, TOP_TABLE, UTS, image};

/// Describes the machine except its memory, which [`tables`](super::tables) and [`memmap`](super::memmap)
/// compute.
pub(super) fn machine() -> Machine {
    let mut machine = Machine::new(Era::V7_1);
    machine.five_level().info("OSRELEASE", RELEASE);
    for (name, paddr) in [
        ("init_uts_ns", UTS),
        ("init_top_pgt", TOP_TABLE),
        ("swapper_pg_dir", TOP_TABLE),
        ("mem_section", MEM_SECTION),
    ] {
        machine.info(&format!("SYMBOL({name})"), format!("{:x}", image(paddr)));
    }
    // Without a direct map, no key may point to one.
    for key in ["NUMBER(VMALLOC_START)", "SYMBOL(node_data)", "LENGTH(node_data)", "SYMBOL(log_buf)"] {
        machine.without_info(key);
    }
    machine
}
