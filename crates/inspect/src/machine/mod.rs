//! The kernel's memory with its symbols, types and unwind tables.

use std::cell::OnceCell;
use std::sync::Arc;

use pagehaul_btf::{Btf, Fault, Object, Space};
use pagehaul_kernel::{AddressSpace, Lost, ReadVirtual};
use pagehaul_machine::{Arch, PageSize};
use pagehaul_symbols::Symbols;

use crate::unwind::{FrameRecords, Table, Unwinder};

pub mod ahead;
mod image;
pub(crate) mod module;
mod module_list;
pub(crate) mod open;
pub(crate) mod taints;
pub(crate) mod typed;

use module::Module;

/// Bytes of BTF. Distribution kernels have 5 MB.
const MAX_BTF: u64 = 64 << 20;
/// Most CPUs that are read (NR_CPUS is 8,192 in distribution kernels).
const MAX_CPUS: u64 = 8192;

/// A crashed kernel, ready to be inspected.
pub struct Machine<'a> {
    known: Arc<Known<'a>>,
    space: Space<'a>,
    /// Offsets of the possible CPUs.
    possible: OnceCell<Vec<u64>>,
}

/// What is known of a kernel, by all threads that inspect it.
pub(crate) struct Known<'a> {
    kernel: &'a AddressSpace,
    notes: &'a [u8],
    symbols: Symbols,
    modules: Vec<Module>,
    /// How stacks are unwound: by these, or by these tables.
    records: Option<FrameRecords>,
    table: Option<Table>,
    module_tables: Vec<Table>,
    cpu_count: u64,
    per_cpu_offsets: u64,
    warnings: Vec<String>,
    symbols_whole: bool,
    /// Why there are no symbols, if there are none.
    without_symbols: Option<String>,
    unwinds_whole: bool,
    modules_known: bool,
    modules_whole: bool,
    runs: bool,
}

impl<'a> Machine<'a> {
    fn of(known: Arc<Known<'a>>, space: Space<'a>) -> Self {
        Self { known, space, possible: OnceCell::new() }
    }

    /// Returns the same machine for another thread, which has another reader of its memory.
    pub(crate) fn for_thread(&self) -> ForThread<'a> {
        ForThread { known: Arc::clone(&self.known), btf: self.space.shared_btf() }
    }

    /// Changes what is known, which no thread shares yet.
    fn learn(mut self, learn: impl FnOnce(&mut Known<'a>)) -> Self {
        if let Some(known) = Arc::get_mut(&mut self.known) {
            learn(known);
        }
        self
    }

    /// Says that the kernel runs while its memory is read.
    pub fn running(self) -> Self {
        self.learn(|known| known.runs = true)
    }

    pub(crate) fn runs(&self) -> bool {
        self.known.runs
    }

    /// Whether the list of modules could be read.
    pub(crate) fn modules_known(&self) -> bool {
        self.known.modules_known
    }

    /// Returns whether the list of modules could be read to its end.
    pub fn modules_whole(&self) -> bool {
        self.known.modules_whole
    }

    /// Whether the tables of symbols could be read whole: else symbols that the kernel has can be unknown, or have wrong names.
    pub(crate) fn symbols_whole(&self) -> bool {
        self.known.symbols_whole
    }

    /// Returns why the machine [has no symbols](Self::without_symbols), if it has none.
    pub fn lacks_symbols(&self) -> Option<&str> {
        self.known.without_symbols.as_deref()
    }

    /// Whether the table of unwind data could be read whole, if there is one.
    pub(crate) fn unwinds_whole(&self) -> bool {
        self.known.unwinds_whole
    }

    /// Whether stacks can be unwound beyond their first frame, with a table that could be read whole.
    pub(crate) fn unwinds(&self) -> bool {
        self.known.unwinds_whole && (self.known.records.is_some() || self.known.table.is_some())
    }

    /// Returns what VMCOREINFO and the page tables say.
    pub fn kernel(&self) -> &'a AddressSpace {
        self.known.kernel
    }

    /// Returns the size of the machine's pages.
    pub fn page_size(&self) -> PageSize {
        self.known.kernel.page_size()
    }

    pub(crate) fn arch(&self) -> &'static dyn Arch {
        self.known.kernel.arch()
    }

    /// Returns the ELF notes of the source.
    pub fn notes(&self) -> &'a [u8] {
        self.known.notes
    }

    /// Returns types and memory.
    pub fn space(&self) -> &Space<'a> {
        &self.space
    }

    /// Returns types that have `record`: the kernel's, or those that `module` adds to them (36e68442d1af, 5.11).
    pub fn types_with(&self, record: &str, module: &str) -> Result<Space<'a>, Fault> {
        if self.space.record(record).is_ok() {
            return Ok(self.space.with(self.space.shared_btf()));
        }
        let walk = self.variable("btf_modules", "list_head")?.list("btf_module", "list")?;
        for added in walk.items {
            if added.get("module->name")?.text()? != module {
                continue;
            }
            let bytes = added.get("btf")?.target()?;
            let len = bytes.number("data_size")?.min(MAX_BTF) as usize;
            let bytes = self.memory().bytes(bytes.get("data")?.pointer()?, len)?;
            let btf = Btf::parse_split(bytes, self.space.shared_btf())
                .map_err(|_| Fault::NoType(format!("{record} (the BTF of {module} is damaged)")))?;
            return Ok(self.space.with(Arc::new(btf)));
        }
        // The types of a module whose entry is lost are not known, and those of one that was not found neither.
        Err(match walk.broken {
            Some(why) => Fault::NotRead(format!(
                "the types of {module}, which have {record}, were not found: the list of types of modules was not read to its end: {why}"
            )),
            None => Fault::NoType(record.to_owned()),
        })
    }

    /// Returns what reads could not have since the last call, because the source lost it.
    pub(crate) fn take_lost(&self) -> Lost {
        self.memory().take_lost()
    }

    /// Returns what `work` finds, and what reads of it could not have, because the source lost it, as a sentence.
    pub fn losing<T>(&self, work: impl FnOnce() -> T) -> (T, Option<String>) {
        let mut before = self.take_lost();
        let found = work();
        let lost = self.take_lost();
        let why = lost.describe();
        before.merge(lost);
        self.memory().put_back_lost(before);
        (found, why)
    }

    /// Returns the memory.
    pub fn memory(&self) -> &'a dyn ReadVirtual {
        self.space.memory()
    }

    /// Returns the symbols of the kernel and its modules.
    pub fn symbols(&self) -> &Symbols {
        &self.known.symbols
    }

    /// Returns the loaded modules, the latest first.
    pub fn modules(&self) -> &[Module] {
        &self.known.modules
    }

    /// Returns what is missing for all sections, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.known.warnings
    }

    /// Returns an unwinder.
    pub fn unwinder(&self) -> Unwinder<'_> {
        if let Some(records) = self.known.records {
            return Unwinder::with_records(self.memory(), &self.known.symbols, self.known.kernel, records);
        }
        // 87ccc826bf1c (5.12). `struct orc_entry` did not change; a symbol that came with 5.12 does not exist either.
        let load_before_add = self.release().is_none_or(|release| release >= (5, 12));
        Unwinder::new(
            self.memory(),
            &self.known.symbols,
            self.known.table.as_ref(),
            &self.known.module_tables,
            load_before_add,
        )
    }

    /// Returns major and minor number of the release.
    pub fn release(&self) -> Option<(u32, u32)> {
        let mut numbers = self.known.kernel.info().get("OSRELEASE")?.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Returns the address of a kernel symbol.
    pub fn symbol(&self, name: &str) -> Result<u64, Fault> {
        self.known.symbols.address(name).ok_or_else(|| match (self.symbols_whole(), self.lacks_symbols()) {
            (_, Some(_)) => {
                Fault::NotRead("the kernel's symbols, which lead to it, could not be read".into())
            }
            (true, None) => Fault::NoSymbol(name.to_owned()),
            (false, None) => Fault::NotRead(format!(
                "the symbol {name} was not found in what could be read of the symbols"
            )),
        })
    }

    /// Returns the address of a symbol of the kernel, or of `module`, which can be built in.
    pub fn symbol_in(&self, module: &str, name: &str) -> Result<u64, Fault> {
        if let Some(found) = self.symbols().address_in(module, name) {
            return Ok(found);
        }
        match self.symbol(name) {
            // The module can be one that was not read, or its symbols.
            Err(Fault::NoSymbol(_)) if !self.modules_whole() => Err(Fault::NotRead(format!(
                "the symbol {name} was not found in what could be read of the modules"
            ))),
            found => found,
        }
    }

    /// Returns a kernel variable. BTF has no variables, so the caller names the type.
    pub fn variable(&self, symbol: &str, record: &str) -> Result<Object<'_>, Fault> {
        self.space.object(self.symbol(symbol)?, record)
    }

    /// Returns the word of 4 bytes that a symbol names.
    pub fn u32(&self, symbol: &str) -> Result<u32, Fault> {
        Ok(self.memory().u32(self.symbol(symbol)?)?)
    }

    /// Returns the word of 8 bytes that a symbol names.
    pub fn u64(&self, symbol: &str) -> Result<u64, Fault> {
        Ok(self.memory().u64(self.symbol(symbol)?)?)
    }

    /// Returns the name of the function at an address, with its module: `function [module]`.
    pub(crate) fn function_at(&self, address: u64) -> String {
        let Some(name) = self.symbols().name(address) else { return format!("{address:#x}") };
        let module = name.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
        format!("{}{module}", name.readable())
    }

    /// Returns the number of CPU ids (`nr_cpu_ids`).
    pub fn cpu_count(&self) -> u64 {
        self.known.cpu_count
    }

    /// Returns the CPUs of a mask such as `__cpu_online_mask`.
    pub fn cpu_mask(&self, symbol: &str) -> Result<Vec<u64>, Fault> {
        let start = self.symbol(symbol)?;
        let mut found = Vec::new();
        for word in 0..self.known.cpu_count.div_ceil(64) {
            let bits = self.memory().u64(start.wrapping_add(8 * word))?;
            found.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| 64 * word + bit));
        }
        found.retain(|cpu| *cpu < self.known.cpu_count);
        Ok(found)
    }

    /// Returns the address that a per-CPU address has on a CPU.
    pub fn on_cpu(&self, address: u64, cpu: u64) -> Result<u64, Fault> {
        if self.known.per_cpu_offsets == 0 {
            return Err(Fault::NoSymbol("__per_cpu_offset".into()));
        }
        Ok(address.wrapping_add(self.memory().u64(self.known.per_cpu_offsets.wrapping_add(8 * cpu))?))
    }

    /// Returns the address of a per-CPU variable on a CPU.
    pub fn per_cpu(&self, symbol: &str, cpu: u64) -> Result<u64, Fault> {
        self.on_cpu(self.symbol(symbol)?, cpu)
    }

    /// Returns the sum of a per-CPU counter (`struct percpu_counter`), at least 0.
    pub fn percpu_counter(&self, counter: &Object<'_>) -> Result<i64, Fault> {
        let mut sum = counter.get("count")?.signed()?;
        let parts = counter.get("counters")?.pointer()?;
        if parts != 0 {
            for offset in self.possible_offsets()? {
                let part = self.memory().u32(parts.wrapping_add(*offset))?;
                sum = sum.wrapping_add(i64::from(part as i32));
            }
        }
        Ok(sum.max(0))
    }

    /// Returns how far `count` of a per-CPU counter can be from the sum: each CPU keeps less than a batch.
    pub(crate) fn percpu_counter_error(&self) -> Result<i64, Fault> {
        // `compute_batch_value` (lib/percpu_counter.c): 32, or twice the number of CPUs.
        let batch = self.u32("percpu_counter_batch").unwrap_or(32).clamp(32, 2 * MAX_CPUS as u32);
        Ok(i64::from(batch) * self.possible_offsets()?.len() as i64)
    }

    fn possible_offsets(&self) -> Result<&[u64], Fault> {
        if let Some(known) = self.possible.get() {
            return Ok(known);
        }
        let cpus = self.cpu_mask("__cpu_possible_mask")?;
        let offsets = cpus.into_iter().map(|cpu| self.on_cpu(0, cpu)).collect::<Result<Vec<u64>, Fault>>()?;
        Ok(self.possible.get_or_init(|| offsets))
    }
}

/// A machine without its memory.
pub(crate) struct ForThread<'a> {
    known: Arc<Known<'a>>,
    btf: Arc<Btf>,
}

impl<'a> ForThread<'a> {
    /// Returns it with memory that this thread reads.
    pub(crate) fn with_memory<'m>(self, memory: &'m dyn ReadVirtual) -> Machine<'m>
    where
        'a: 'm,
    {
        Machine::of(self.known, Space::shared(memory, self.btf))
    }
}
