//! The kernel's memory and its types.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pagehaul_kernel::ReadVirtual;

use crate::fault::Fault;
use crate::parse::Btf;
use crate::types::{Member, TypeId};

/// Memory and types of one kernel, for one thread.
pub struct Space<'a> {
    memory: &'a dyn ReadVirtual,
    btf: Arc<Btf>,
    /// Members found so far, and those that do not exist: walks ask for the same ones for every object.
    members: RefCell<HashMap<TypeId, MembersByPath, BuildHasherDefault<PathHasher>>>,
    /// Nodes that walks may still visit. A crafted dump can hang one long list into each of many.
    nodes_left: Cell<usize>,
}

/// Nodes that all walks together may visit.
const MAX_NODES: usize = 16 << 20;

type MembersByPath = HashMap<Box<str>, Option<Member>, BuildHasherDefault<PathHasher>>;

/// FNV-1a by words. The default hasher withstands crafted keys at three times the price; these keys are in the program.
#[derive(Default)]
struct PathHasher(u64);

impl Hasher for PathHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        // The upper bits decide the place, too.
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<'a> Space<'a> {
    /// Joins memory and types. A kernel without BTF has an empty table of types.
    pub fn new(memory: &'a dyn ReadVirtual, btf: Btf) -> Self {
        Self::shared(memory, Arc::new(btf))
    }

    /// Joins memory and types that other threads have, too.
    pub fn shared(memory: &'a dyn ReadVirtual, btf: Arc<Btf>) -> Self {
        Self { memory, btf, members: RefCell::default(), nodes_left: Cell::new(MAX_NODES) }
    }

    /// Returns the same memory with other types.
    #[must_use]
    pub fn with(&self, btf: Arc<Btf>) -> Self {
        Self::shared(self.memory, btf)
    }

    /// Returns the types, for modules whose types continue them.
    pub fn shared_btf(&self) -> Arc<Btf> {
        Arc::clone(&self.btf)
    }

    /// Takes one node from the budget of all walks; false if none is left.
    pub(crate) fn take_node(&self) -> bool {
        let left = self.nodes_left.get();
        self.nodes_left.set(left.saturating_sub(1));
        left > 0
    }

    /// Returns the memory.
    pub fn memory(&self) -> &'a dyn ReadVirtual {
        self.memory
    }

    /// Returns the types.
    pub fn btf(&self) -> &Btf {
        &self.btf
    }

    /// Returns the number of a structure.
    pub fn record(&self, name: &str) -> Result<TypeId, Fault> {
        self.btf.record(name).ok_or_else(|| self.no_type(name))
    }

    /// Returns why a type, or an enumerator, cannot be had.
    pub fn no_type(&self, name: &str) -> Fault {
        if self.btf.is_empty() { Fault::NoBtf(name.to_owned()) } else { Fault::NoType(name.to_owned()) }
    }

    /// Returns whether a structure has a member.
    pub fn has(&self, record: &str, path: &str) -> bool {
        self.record(record).is_ok_and(|id| self.member(id, path).is_ok())
    }

    /// Returns the size of a structure in bytes.
    pub fn size_of(&self, record: &str) -> Result<u64, Fault> {
        self.btf.size(self.record(record)?).ok_or_else(|| self.no_type(record))
    }

    /// Returns the offset of a member in bytes.
    pub fn offset_of(&self, record: &str, path: &str) -> Result<u64, Fault> {
        self.member(self.record(record)?, path).map(|member| member.bit_offset / 8)
    }

    /// Returns a member of a structure.
    pub fn member(&self, record: TypeId, path: &str) -> Result<Member, Fault> {
        let mut members = self.members.borrow_mut();
        let of_record = members.entry(record).or_default();
        let found = match of_record.get(path) {
            Some(known) => *known,
            None => {
                let found = self.btf.member(record, path);
                of_record.insert(path.into(), found);
                found
            }
        };
        found.ok_or_else(|| {
            let record = self.btf.resolve(record).map_or_else(String::new, |found| self.btf.name(&found));
            Fault::NoField { record, field: path.to_owned() }
        })
    }
}
