//! Stacks that the kernel keeps once each (lib/stackdepot.c). `page_owner` and others refer to them by handles.

use pagehaul_btf::{Fault, Space};

use crate::machine::Machine;

/// Maximum number of frames of a stack. The kernel saves 64 at most; the depot itself has a limit since 6.9 only.
const MAX_FRAMES: u32 = 256;
/// Records are aligned to 16 bytes (`DEPOT_STACK_ALIGN`).
const ALIGN: u32 = 4;
/// Maximum number of pools (`DEPOT_POOLS_CAP`).
const MAX_POOLS: u32 = 8192;

/// Some bits of a handle.
#[derive(Debug, Clone, Copy)]
struct Bits {
    shift: u32,
    width: u32,
}

impl Bits {
    fn new(space: &Space<'_>, name: &str) -> Result<Self, Fault> {
        let member = space.member(space.record("handle_parts")?, name)?;
        let bits = member.bits.map(|width| Self { shift: (member.bit_offset % 32) as u32, width });
        bits.filter(|bits| bits.width > 0 && bits.shift + bits.width <= 32)
            .ok_or_else(|| Fault::WrongKind(format!("handle_parts.{name}"), "bits of a handle"))
    }

    fn mask(self) -> u32 {
        ((1_u64 << self.width) - 1) as u32
    }

    fn of(self, handle: u32) -> u32 {
        handle >> self.shift & self.mask()
    }
}

/// The depot.
pub struct StackDepot<'a> {
    machine: &'a Machine<'a>,
    /// Where the table of pools can be, in this order: a record says whether it is the one.
    tables: Vec<u64>,
    /// What can have to be subtracted from the index of a handle.
    bases: &'static [u32],
    index: Bits,
    offset: Bits,
    valid: Option<Bits>,
    extra: u32,
    /// Offsets in a record.
    size: u64,
    handle: u64,
    entries: u64,
}

impl<'a> StackDepot<'a> {
    /// Finds the depot.
    ///
    /// # Errors
    /// Fails if the kernel has none, or its types are not known.
    pub fn new(machine: &'a Machine<'a>) -> Result<Self, Fault> {
        let space = machine.space();
        // Slabs are called pools since 961c949b012f (6.3).
        let table = machine.symbol("stack_pools").or_else(|_| machine.symbol("stack_slabs"))?;
        // An array, and a pointer to one in 6.18.
        let pointed = machine.memory().u64(table).ok().filter(|table| table >> 63 == 1);
        let valid = Bits::new(space, "valid").ok();
        let index = ["pool_index_plus_1", "pool_index", "slabindex"];
        let found = index.iter().find(|name| space.has("handle_parts", name));
        let name = found.copied().unwrap_or("pool_index_plus_1");
        let bases: &[u32] = match (name, valid) {
            // a6c1d9cb9a68 (6.9).
            ("pool_index_plus_1", _) => &[1],
            // 3ee34eabac2a (6.9-rc1, stable 6.8) counts from 1 under the old name.
            ("pool_index", None) => &[1, 0],
            _ => &[0],
        };
        let record = |member| space.offset_of("stack_record", member);
        Ok(Self {
            machine,
            tables: [Some(table), pointed].into_iter().flatten().collect(),
            bases,
            index: Bits::new(space, name)?,
            offset: Bits::new(space, "offset")?,
            valid,
            // Users have their own bits there, which records lack (6.1).
            extra: Bits::new(space, "extra").map_or(0, |bits| bits.mask() << bits.shift),
            size: record("size")?,
            handle: record("handle")?,
            entries: record("entries")?,
        })
    }

    /// Returns the return addresses of a stack, the innermost first.
    ///
    /// # Errors
    /// Fails if no record has this handle, or the record is damaged.
    pub fn stack(&self, handle: u32) -> Result<Vec<u64>, Fault> {
        let wanted = handle & !self.extra;
        if wanted == 0 || self.valid.is_some_and(|valid| valid.of(handle) == 0) {
            return Err(Fault::NotRead(format!("the handle {handle:#x} is of no stack")));
        }
        let memory = self.machine.memory();
        let offset = u64::from(self.offset.of(handle)) << ALIGN;
        let mut why = None;
        for table in &self.tables {
            for base in self.bases {
                let index = self.index.of(handle).checked_sub(*base).filter(|index| *index < MAX_POOLS);
                let Some(index) = index else { continue };
                let read = || -> Result<Option<u64>, Fault> {
                    let pool = memory.u64(table.wrapping_add(8 * u64::from(index)))?;
                    let record = pool.wrapping_add(offset);
                    let is_it = pool >> 63 == 1 && memory.u32(record.wrapping_add(self.handle))? == wanted;
                    Ok(is_it.then_some(record))
                };
                match read() {
                    Ok(Some(record)) => return self.read(record),
                    Ok(None) => {}
                    Err(fault) => why = why.or(Some(fault)),
                }
            }
        }
        Err(why.unwrap_or_else(|| {
            Fault::NotRead(format!("no record of the stack depot has the handle {handle:#x}"))
        }))
    }

    fn read(&self, record: u64) -> Result<Vec<u64>, Fault> {
        let memory = self.machine.memory();
        let size = memory.u32(record.wrapping_add(self.size))?;
        if size == 0 || size > MAX_FRAMES {
            return Err(Fault::NotRead(format!("the stack at {record:#x} claims {size} frames")));
        }
        let bytes = memory.bytes(record.wrapping_add(self.entries), 8 * size as usize)?;
        let entries: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match entries.iter().find(|entry| **entry >> 63 == 0) {
            Some(entry) => Err(Fault::NotRead(format!(
                "the stack at {record:#x} has {entry:#x}, which is not an address of the kernel"
            ))),
            None => Ok(entries),
        }
    }
}
