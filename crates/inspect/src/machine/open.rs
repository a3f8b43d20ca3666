//! Opens a kernel: reads its symbols, types, modules and unwind tables.

use std::sync::Arc;

use pagehaul_btf::{Btf, Space};
use pagehaul_kernel::{AddressSpace, Lost, ReadVirtual, VirtualMemory};
use pagehaul_machine::Unwinding;
use pagehaul_symbols::{Kallsyms, SymbolError, Symbols};

use super::module::LoadedModules;
use super::{Known, MAX_BTF, MAX_CPUS, Machine, image, module_list};
use crate::unwind::{FrameRecords, Table, Version};

/// Bytes of kallsyms' tables. Distribution kernels have 4 MB.
const MAX_SYMBOL_TABLES: u64 = 32 << 20;

/// Why nothing can be inspected.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There are no symbols, which everything but the notes and the log needs.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
}

impl<'a> Machine<'a> {
    /// Reads symbols, types, modules and unwind tables. `notes` are the ELF notes of the source.
    pub fn open(
        kernel: &'a AddressSpace,
        memory: &'a VirtualMemory<'_>,
        notes: &'a [u8],
    ) -> Result<Self, OpenError> {
        let symbols = Kallsyms::read(kernel.info(), memory)?;
        let lost = lost_tables(&symbols, memory);
        Ok(Self::with_symbols(kernel, memory, notes, symbols, lost))
    }

    /// As [`open`](Self::open), for memory that records what is read. Symbols are searched in `unrecorded`, the same
    /// memory: a search reads the whole kernel image, and needs only the tables to succeed again.
    pub fn open_recorded(
        kernel: &'a AddressSpace,
        memory: &'a VirtualMemory<'_>,
        unrecorded: &dyn ReadVirtual,
        notes: &'a [u8],
    ) -> Result<Self, OpenError> {
        let symbols = Kallsyms::read(kernel.info(), unrecorded)?;
        let tables = symbols.extent();
        let len = tables.end.saturating_sub(tables.start).min(MAX_SYMBOL_TABLES);
        memory.readable_bytes(tables.start, len as usize);
        let lost = lost_tables(&symbols, unrecorded);
        Ok(Self::with_symbols(kernel, memory, notes, symbols, lost))
    }

    /// Returns a machine of which only VMCOREINFO, the notes and memory are known: `why` its symbols cannot be read. All that needs them
    /// fails, and a report is made of the notes and the log.
    pub fn without_symbols(
        kernel: &'a AddressSpace,
        memory: &'a VirtualMemory<'_>,
        notes: &'a [u8],
        why: &OpenError,
    ) -> Self {
        drop(memory.take_lost());
        let known = Known {
            symbols_whole: false,
            without_symbols: Some(why.to_string()),
            unwinds_whole: false,
            kernel,
            notes,
            per_cpu_offsets: 0,
            symbols: Symbols::new(Kallsyms::none()),
            modules: Vec::new(),
            records: None,
            table: None,
            module_tables: Vec::new(),
            cpu_count: 1,
            warnings: vec![format!("symbols: {why}")],
            modules_known: false,
            modules_whole: false,
            runs: false,
        };
        Self::of(Arc::new(known), Space::new(memory, Btf::default()))
    }

    /// Reads types, modules and unwind tables of a kernel whose symbols are known.
    fn with_symbols(
        kernel: &'a AddressSpace,
        memory: &'a VirtualMemory<'_>,
        notes: &'a [u8],
        symbols: Kallsyms,
        lost_symbols: Lost,
    ) -> Self {
        let symbols = Symbols::new(symbols);
        image::announce(&symbols, memory);
        // 021182e52fe0 (4.8); the image needs no direct map.
        if memory.direct_map().is_empty()
            && let Some(start) = symbols.address("page_offset_base").and_then(|at| memory.u64(at).ok())
        {
            memory.set_direct_map(start);
        }
        let absent =
            |why| format!("the source has no struct pages, and lacks other early allocations: {why}");
        let mut warnings: Vec<String> = kernel.without_struct_pages().map(absent).into_iter().collect();
        let btf = read_btf(&symbols, memory).unwrap_or_else(|why| {
            warnings.push(format!("{why}: only the log, symbols and stacks of CPUs can be shown"));
            Btf::default()
        });
        let lost_symbols = lost_symbols.describe();
        warnings.extend(lost_symbols.iter().map(|why| format!("symbols: {why}")));
        drop(memory.take_lost());
        let records = frame_records(kernel.arch().unwinding(), &btf);
        let mut table = None;
        if records.is_none() {
            table = Table::of_kernel(&symbols, memory, orc_layout(&btf))
                .map_err(|why| warnings.push(format!("stacks have one frame only: {why}")))
                .ok();
        }
        let lost_table = memory.take_lost().describe().filter(|_| table.is_some());
        warnings.extend(lost_table.iter().map(|why| format!("stacks: {why}")));
        let known = Known {
            symbols_whole: lost_symbols.is_none(),
            without_symbols: None,
            unwinds_whole: lost_table.is_none(),
            kernel,
            notes,
            per_cpu_offsets: symbols.address("__per_cpu_offset").unwrap_or(0),
            symbols,
            modules: Vec::new(),
            records,
            table,
            module_tables: Vec::new(),
            cpu_count: 1,
            warnings,
            modules_known: false,
            modules_whole: false,
            runs: false,
        };
        Self::of(Arc::new(known), Space::new(memory, btf)).with_cpu_count().with_modules()
    }

    fn with_cpu_count(self) -> Self {
        let count = self.symbol("nr_cpu_ids").and_then(|at| Ok(self.memory().u32(at)?));
        self.learn(|known| known.cpu_count = count.map_or(1, u64::from).clamp(1, MAX_CPUS))
    }

    fn with_modules(self) -> Self {
        drop(self.take_lost());
        let loaded = module_list::read(&self);
        let lost = self.take_lost().describe();
        self.learn(|known| match loaded {
            Ok(mut loaded) => {
                loaded.broken = loaded.broken.or(lost);
                known.add_modules(loaded);
            }
            Err(why) => known.warnings.push(format!("modules are not shown: {why}")),
        })
    }
}

impl Known<'_> {
    fn add_modules(&mut self, loaded: LoadedModules) {
        self.modules_known = true;
        self.modules_whole = loaded.broken.is_none();
        self.warnings.extend(loaded.broken.map(|why| format!("modules: {why}")));
        for loaded in loaded.modules {
            let arch = loaded.unwind;
            self.symbols.add(loaded.symbols);
            let ranges = loaded.module.ranges.clone();
            let table = self
                .table
                .as_ref()
                .and_then(|table| table.of_module(arch.addresses, arch.entries, arch.count, ranges).ok());
            self.module_tables.extend(table);
            self.modules.push(loaded.module);
        }
    }
}

/// Returns what the source lost of the tables of symbols, if it lost something that reading them needed: a search for them reads more
/// than these tables.
fn lost_tables(symbols: &Kallsyms, memory: &dyn ReadVirtual) -> Lost {
    let lost = memory.take_lost();
    if lost.is_empty() {
        return lost;
    }
    let tables = symbols.extent();
    let len = tables.end.saturating_sub(tables.start).min(MAX_SYMBOL_TABLES);
    memory.readable_bytes(tables.start, len as usize);
    memory.take_lost()
}

/// What a kernel's frame records look like; `None` if its stacks are unwound with ORC.
fn frame_records(unwinding: Unwinding, btf: &Btf) -> Option<FrameRecords> {
    match unwinding {
        Unwinding::Orc => None,
        // Without the kernel's types, exceptions end a stack.
        Unwinding::FrameRecords => {
            let regs = btf.record("pt_regs").and_then(|record| btf.member(record, "stackframe"));
            Some(FrameRecords::Arm64 {
                in_pt_regs: regs.map(|member| member.bit_offset / 8),
                typed: btf.record("frame_record_meta").is_some(),
            })
        }
        Unwinding::FrameRecordsBelow => Some(FrameRecords::Riscv64),
    }
}

/// The layout of ORC entries by `struct orc_entry`, for kernels without `.orc_header`. V4 always has one.
fn orc_layout(btf: &Btf) -> Option<Version> {
    let entry = btf.record("orc_entry")?;
    let signal = btf.member(entry, "signal").is_some();
    match btf.member(entry, "type")?.bits? {
        2 if signal => Some(Version::V2),
        2 => Some(Version::V1),
        3 => Some(Version::V3),
        _ => None,
    }
}

fn read_btf(symbols: &Symbols, memory: &dyn ReadVirtual) -> Result<Btf, String> {
    let range = symbols.address("__start_BTF").zip(symbols.address("__stop_BTF"));
    let Some((start, end)) = range else {
        return Err("the kernel has no BTF, or kallsyms has no variables (CONFIG_KALLSYMS_ALL)".into());
    };
    let len = end.saturating_sub(start).min(MAX_BTF);
    let bytes =
        memory.bytes(start, len as usize).map_err(|why| format!("cannot read the kernel's BTF: {why}"))?;
    Btf::parse(bytes).map_err(|why| why.to_string())
}
