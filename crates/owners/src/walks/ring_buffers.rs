//! Ring buffers of the kernel's tracing, by instance.

use pagehaul_btf::{Fault, Object};

use super::Walks;
use crate::claims::Claimant;

/// CPUs that a buffer can have (`NR_CPUS`).
const MAX_CPUS: u64 = 8192;
/// Flags in the low bits of `list.next` (`RB_FLAG_MASK`, kernel/trace/ring_buffer.c).
const FLAGS: u64 = 3;
/// Largest sub-buffer, in pages: `subbuf_order` (f9b94daa542a, 6.8) is at most that of the largest block.
const MAX_ORDER: u64 = 10;

impl Walks<'_> {
    /// Claims the ring buffers of all trace instances.
    pub(super) fn ring_buffers(&mut self) {
        match self.instances() {
            // A kernel without tracing.
            Ok(()) | Err(Fault::NoSymbol(_)) => {}
            Err(why) => self.failed("ring buffers", why),
        }
    }

    fn instances(&mut self) -> Result<(), Fault> {
        let machine = self.machine;
        let found = machine.variable("ftrace_trace_arrays", "list_head")?.list("trace_array", "list")?;
        let mut broken = found.broken;
        let mut left = self.pages_of_machine();
        for instance in found.items {
            // One that cannot be read does not end the list.
            if let Err(why) = self.instance(&instance, &mut left) {
                broken.get_or_insert_with(|| {
                    format!("those of the instance at {:#x}: {why}", instance.address())
                });
            }
        }
        if left == 0 {
            broken.get_or_insert_with(|| "they count more pages than the machine has".into());
        }
        broken.map_or(Ok(()), |why| Err(Fault::NotRead(why)))
    }

    fn instance(&mut self, instance: &Object<'_>, left: &mut u64) -> Result<(), Fault> {
        // The first one has no name.
        let owner = match instance.get("name")?.text() {
            Ok(name) => format!("tracefs instances/{name}"),
            Err(Fault::Null(_)) => "tracefs".to_owned(),
            Err(why) => return Err(why),
        };
        let claimant = self.claims.claimant(Claimant::RingBuffer { owner });
        // The second one exists with CONFIG_TRACER_SNAPSHOT; it was renamed between 6.18 and 7.2.
        for buffer in ["array_buffer", "max_buffer", "snapshot_buffer"] {
            let Ok(buffer) = instance.get(buffer) else { continue };
            match buffer.get("buffer")?.target() {
                Ok(buffer) => self.trace_buffer(&buffer, claimant, left)?,
                Err(Fault::Null(_)) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn trace_buffer(&mut self, buffer: &Object<'_>, claimant: u32, left: &mut u64) -> Result<(), Fault> {
        let buffers = buffer.get("buffers")?.target()?;
        for cpu in 0..self.machine.cpu_count().min(MAX_CPUS) {
            let of_cpu = match buffers.index(cpu)?.target() {
                Ok(of_cpu) => of_cpu,
                // A CPU that never was online.
                Err(Fault::Null(_)) => continue,
                Err(why) => return Err(why),
            };
            self.sub_buffer(&of_cpu.get("reader_page")?.target()?, claimant)?;
            self.sub_buffers(&of_cpu, claimant, left)?;
        }
        Ok(())
    }

    fn sub_buffer(&mut self, page: &Object<'_>, claimant: u32) -> Result<(), Fault> {
        let order = if page.has("order") { page.number("order")?.min(MAX_ORDER) } else { 0 };
        self.claim_block_at(page.get("page")?.pointer()?, 1 << order, claimant)
    }

    /// Claims the ring of a CPU: as many sub-buffers as it counts, without that of the reader.
    fn sub_buffers(&mut self, of_cpu: &Object<'_>, claimant: u32, left: &mut u64) -> Result<(), Fault> {
        let space = of_cpu.space();
        let offset = space.offset_of("buffer_page", "list")?;
        let first = of_cpu.get("pages")?.pointer()? & !FLAGS;
        let count = of_cpu.number("nr_pages")?;
        let mut at = first;
        for number in 1..=count {
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            self.sub_buffer(&space.object(at.wrapping_sub(offset), "buffer_page")?, claimant)?;
            at = space.memory().u64(at)? & !FLAGS;
            if at == first && number < count {
                let what = format!("the ring at {first:#x}, of {number} sub-buffers,");
                return Err(Fault::WrongKind(what, "one of as many as it counts"));
            }
        }
        Ok(())
    }
}
