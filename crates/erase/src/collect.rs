//! Gathers what is erased, and what cannot be.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_kernel::TranslateError;
use pagehaul_physmem::PAGE_SIZE;

use crate::erasure::Erasure;
use crate::find::Found;
use crate::free_objects::FreeObjects;

/// Places of all subjects together: 16 MiB. A damaged kernel can name as many as it likes.
const MAX_PLACES: usize = 1 << 20;
/// Bytes of one place: the largest log is 2 GiB, and no other is as large as this.
const MAX_PLACE: u64 = 2 << 30;
/// Sentences on what is not erased; more than these say nothing new.
const MAX_UNERASED: usize = 64;

/// Returns the physical address behind a virtual one.
pub(crate) type Translate<'a> = dyn Fn(u64) -> Result<u64, TranslateError> + 'a;

/// What was found so far.
pub(crate) struct Collector<'a> {
    translate: &'a Translate<'a>,
    places: Vec<Range<u64>>,
    /// Places and bytes of each kind.
    counts: BTreeMap<String, (u64, u64)>,
    unerased: Vec<String>,
    free_objects: FreeObjects,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(translate: &'a Translate<'a>) -> Self {
        Self {
            translate,
            places: Vec::new(),
            counts: BTreeMap::new(),
            unerased: Vec::new(),
            free_objects: FreeObjects::default(),
        }
    }

    /// Erases `len` bytes at `vaddr`, which are `what`.
    pub(crate) fn erase(&mut self, what: &str, vaddr: u64, len: u64) {
        if len == 0 {
            return;
        }
        if len > MAX_PLACE {
            return self.gap(format!("{what} at {vaddr:#x}: {len} bytes cannot be right"));
        }
        let mut at = vaddr;
        let end = vaddr.saturating_add(len);
        while at < end {
            let in_page = PAGE_SIZE as u64 - at % PAGE_SIZE as u64;
            let piece = in_page.min(end - at);
            if self.places.len() >= MAX_PLACES {
                return self.gap(format!("{what}: there are more than {MAX_PLACES} places"));
            }
            match (self.translate)(at) {
                Ok(paddr) => match self.places.last_mut() {
                    Some(last) if last.end == paddr => last.end += piece,
                    _ => self.places.push(paddr..paddr.saturating_add(piece)),
                },
                Err(why) => return self.gap(format!("{what} at {at:#x}: {why}")),
            }
            at += piece;
        }
        let count = self.counts.entry(what.to_owned()).or_default();
        *count = (count.0 + 1, count.1.saturating_add(len));
    }

    /// Erases an object of a known size.
    pub(crate) fn erase_object(&mut self, what: &str, object: &Object<'_>) {
        match object.size() {
            Some(len) => self.erase(what, object.address(), len),
            None => self.gap(format!("{what} at {:#x}: its size is unknown", object.address())),
        }
    }

    /// Erases members of an object, which it must have.
    pub(crate) fn erase_members(
        &mut self,
        what: &str,
        object: &Object<'_>,
        paths: &[&str],
    ) -> Result<(), Fault> {
        for path in paths {
            self.erase_object(what, &object.get(path)?);
        }
        Ok(())
    }

    /// Adds free objects of slabs.
    pub(crate) fn free_objects(&mut self, found: FreeObjects, objects: u64, bytes: u64) {
        self.free_objects = found;
        self.counts.insert("free slab objects".to_owned(), (objects, bytes));
    }

    /// Returns what translates addresses.
    pub(crate) fn translate(&self) -> &'a Translate<'a> {
        self.translate
    }

    /// Notes that something cannot be erased.
    pub(crate) fn gap(&mut self, why: impl Display) {
        if self.unerased.len() < MAX_UNERASED {
            self.unerased.push(why.to_string());
        }
    }

    /// Notes why a walk did not reach its end.
    pub(crate) fn broken(&mut self, what: &str, broken: Option<String>) {
        if let Some(why) = broken {
            self.gap(format!("{what}: {why}"));
        }
    }

    /// Notes that `what` was not found.
    pub(crate) fn outcome(&mut self, what: &str, outcome: Result<(), Fault>) {
        if let Err(why) = outcome {
            self.gap(format!("{what}: {why}"));
        }
    }

    pub(crate) fn finish(self) -> Found {
        // As makedumpfile writes it: "erase EXPRESSION size BYTES".
        let line = |(what, (places, bytes)): (&String, &(u64, u64))| {
            let places = if *places == 1 { String::new() } else { format!(" in {places} places") };
            format!("erase {what} size {bytes}{places}")
        };
        let record = self.counts.iter().map(line).collect();
        let sum = |of: fn(&(u64, u64)) -> u64| self.counts.values().map(of).fold(0, u64::saturating_add);
        let count = (sum(|count| count.0), sum(|count| count.1));
        Found {
            erasure: Erasure::new(self.places, self.free_objects, record, count),
            unerased: self.unerased,
        }
    }
}
