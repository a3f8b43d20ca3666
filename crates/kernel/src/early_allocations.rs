//! What the kernel set up before it had an allocator, and what debuggers look for first: table of sections, nodes, log.
//! It lies anywhere in memory and is mapped with all of it.

use std::ops::Range;

use pagehaul_physmem::View;

use crate::kernel::Kernel;

/// More bytes than any of these takes. Larger sizes are damage, such as 2^26 descriptors of the log.
const MAX_BYTES: u64 = 256 << 20;
/// `MAX_NUMNODES` of every kernel so far.
const MAX_NODES: u64 = 1024;

impl Kernel {
    /// Returns their virtual addresses.
    pub(crate) fn early_allocations(&self, view: &mut dyn View) -> Vec<Range<u64>> {
        let mut found = self.sections().table(self.space().translator(), view);
        self.nodes(view, &mut found);
        self.log(view, &mut found);
        found.retain(|range| range.start < range.end && range.end - range.start <= MAX_BYTES);
        found
    }

    fn word(&self, view: &mut dyn View, vaddr: u64) -> Option<u64> {
        self.space().translator().read_u64(view, vaddr).ok()
    }

    /// `pg_data_t` of each node, with its zones and free lists.
    fn nodes(&self, view: &mut dyn View, found: &mut Vec<Range<u64>>) -> Option<()> {
        let table = self.space().info().symbol("node_data")?;
        let size = self.space().info().size("pglist_data")?;
        let count = self.space().info().length("node_data")?.min(MAX_NODES);
        for index in 0..count {
            let node = self.word(view, table.wrapping_add(index * 8)).filter(|node| *node != 0);
            found.extend(node.map(|node| node..node.saturating_add(size)));
        }
        Some(())
    }

    /// The log: large ones, for many CPUs or by `log_buf_len`, are not part of the image.
    fn log(&self, view: &mut dyn View, found: &mut Vec<Range<u64>>) -> Option<()> {
        let info = self.space().info();
        // The buffer of records up to 5.9.
        if let (Some(buffer), Some(length)) = (info.symbol("log_buf"), info.symbol("log_buf_len")) {
            let start = self.word(view, buffer)?;
            let length = self.word(view, length)? & 0xffff_ffff;
            found.push(start..start.saturating_add(length));
        }
        // 896fbe20b4e2 (5.10): a ring of descriptors, one of their metadata, and one of text.
        let ring = self.word(view, info.symbol("prb")?)?;
        let descriptors = ring.wrapping_add(info.offset("printk_ringbuffer.desc_ring")?);
        let count =
            power(self.word(view, descriptors.wrapping_add(info.offset("prb_desc_ring.count_bits")?))?)?;
        for (pointer, size) in [("prb_desc_ring.descs", "prb_desc"), ("prb_desc_ring.infos", "printk_info")] {
            let start = self.word(view, descriptors.wrapping_add(info.offset(pointer)?))?;
            found.push(start..start.saturating_add(count.saturating_mul(info.size(size)?)));
        }
        let text = ring.wrapping_add(info.offset("printk_ringbuffer.text_data_ring")?);
        let length = power(self.word(view, text.wrapping_add(info.offset("prb_data_ring.size_bits")?))?)?;
        let start = self.word(view, text.wrapping_add(info.offset("prb_data_ring.data")?))?;
        found.push(start..start.saturating_add(length));
        Some(())
    }
}

/// 2 to the power of an `unsigned int` in the low half of `word`.
fn power(word: u64) -> Option<u64> {
    1u64.checked_shl(word as u32)
}
