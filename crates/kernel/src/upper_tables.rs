//! The page tables of a process that old kernels do not mark: those above the level of PMDs. Seen: 6.1 marks none of them, 6.12 all but
//! the directory.

use pagehaul_machine::Entry;
use pagehaul_physmem::View;

use crate::kernel::Kernel;

/// Tables of one process: one of PUDs maps 512 GiB with pages of 4 KiB.
const MAX_TABLES: usize = 1 << 12;
/// Level of tables of PMDs.
const PMD: u8 = 2;

impl Kernel {
    /// Returns the physical addresses of the page tables above PMDs that the page directory of a process at `root` leads to. Those
    /// that cannot be read lead to none.
    pub fn upper_tables(&self, view: &mut dyn View, root: u64) -> Vec<u64> {
        let translator = self.space().translator();
        let tables = translator.tables();
        let mut found = Vec::new();
        let mut left = vec![(root, tables.levels)];
        while let Some((table, level)) = left.pop() {
            if level <= PMD + 1 {
                continue;
            }
            // Architectures with a directory of the kernel's own have only the process's memory in this one.
            let entries = match tables.first_kernel_entry {
                first if level == tables.levels && first > 0 => first,
                _ => tables.entries(level),
            };
            let mut bytes = vec![0; entries * 8];
            if view.read(table, &mut bytes).is_err() {
                continue;
            }
            for (index, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let vaddr = (index as u64) << tables.shift(level);
                let entry = translator.layout().decode(u64::from_le_bytes(*entry), level, vaddr);
                if let Entry::Table(paddr) = entry
                    && found.len() < MAX_TABLES
                {
                    found.push(paddr);
                    left.push((paddr, level - 1));
                }
            }
        }
        found
    }
}
