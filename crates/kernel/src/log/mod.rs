//! The kernel's log (`dmesg`), found by VMCOREINFO alone.
//!
//! Two formats: the printk ring buffer since 5.10, and the log buffer of records before it (3.5 on). An
//! inconsistent record is skipped and counted. Memory and time are bounded by the size of the source, not by the sizes that
//! the log claims.

mod records;
mod ring;

use std::ops::Range;

use pagehaul_elfcore::notes;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PhysMemory, View};

use crate::address_space::AddressSpace;
use crate::error::{KernelError, TranslateError};
use crate::machine;
use crate::translate::Translator;
use pagehaul_machine::{InfoError, VmcoreInfo};

/// Pages that are announced at a time: a log of 16 MiB.
const MAX_ANNOUNCED: usize = 1 << 12;
/// Bytes of text that a record can have (`LOG_LINE_MAX` is 1,024; more than this is damage).
const MAX_TEXT: u64 = 1 << 16;

/// Who wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A task, by PID.
    Task(u32),
    /// A processor, outside of any task.
    Cpu(u32),
}

impl Caller {
    /// Decodes the kernel's number (since 5.1): the highest bit marks processors.
    fn new(id: u32) -> Self {
        if id >> 31 == 1 { Self::Cpu(id & !(1 << 31)) } else { Self::Task(id) }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its sequence number since boot, if the kernel keeps it.
    pub sequence: Option<u64>,
    /// Nanoseconds since boot.
    pub nanoseconds: u64,
    /// 0 emergency to 7 debug.
    pub level: u8,
    /// syslog's facility: 0 is the kernel.
    pub facility: u8,
    /// Who wrote it, if the kernel keeps it.
    pub caller: Option<Caller>,
    /// The text, which may have several lines. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The bytes of a text that is not UTF-8.
    pub raw: Option<Vec<u8>>,
    /// Subsystem and device, of messages about one.
    pub device: Option<(String, String)>,
}

impl Record {
    /// Returns the bytes that the kernel wrote.
    pub fn bytes(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or(self.text.as_bytes())
    }
}

/// The log of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Messages, oldest first.
    pub records: Vec<Record>,
    /// Records that are inconsistent or unreadable.
    pub damaged: u64,
}

impl KernelLog {
    /// Reads the log of the kernel in `memory`.
    pub fn read(memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        let space = AddressSpace::without_direct_map(machine::info(memory)?, memory)?;
        let (info, tables) = (space.info(), space.translator());
        let mut source = Reader { info, tables, view: memory.view(), left: memory.held_bytes() };
        if info.symbol("prb").is_some() {
            return ring::read(&mut source);
        }
        records::read(&mut source)
    }

    /// Reads the log for what it says. An error if its text was erased from the dump: then it says nothing, not that nothing happened.
    pub fn read_unerased(memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        match notes::has_erased(memory.notes(), "log") {
            true => Err(KernelError::ErasedLog),
            false => Self::read(memory),
        }
    }

    /// Returns the virtual addresses of all text of the log, also of text that no record has any more: all but what ties blocks
    /// of text to their records. For the printk ring buffer only (5.10).
    pub fn text_places(memory: &dyn PhysMemory) -> Result<Vec<Range<u64>>, KernelError> {
        let space = AddressSpace::without_direct_map(machine::info(memory)?, memory)?;
        let (info, tables) = (space.info(), space.translator());
        ring::text_places(&mut Reader { info, tables, view: memory.view(), left: memory.held_bytes() })
    }
}

/// Reads both formats.
struct Reader<'a> {
    info: &'a VmcoreInfo,
    tables: &'a Translator,
    view: Box<dyn View + 'a>,
    /// Bytes that may still be read. The source holds each byte of a log once, so more can be read only if page tables map the
    /// same page at many addresses.
    left: u64,
}

impl Reader<'_> {
    /// Announces ranges that are read soon.
    fn will_need(&mut self, ranges: &[Range<u64>]) {
        let pages =
            ranges.iter().flat_map(|range| range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE as u64));
        let pages = pages.take(MAX_ANNOUNCED).map(|number| number << PAGE_SHIFT).collect();
        let found = self.tables.translate_together(self.view.as_mut(), pages);
        let page = |paddr: u64| paddr..paddr.saturating_add(PAGE_SIZE as u64);
        self.view.will_need(&found.into_iter().map(page).collect::<Vec<_>>());
    }

    fn bytes(&mut self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        self.tables.read(self.view.as_mut(), vaddr, buf)?;
        self.left = self.left.saturating_sub(buf.len() as u64);
        Ok(())
    }

    fn u64(&mut self, vaddr: u64) -> Result<u64, TranslateError> {
        self.tables.read_u64(self.view.as_mut(), vaddr)
    }

    fn u32(&mut self, vaddr: u64) -> Result<u32, TranslateError> {
        let mut word = [0; 4];
        self.bytes(vaddr, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn offset(&self, name: &'static str) -> Result<u64, KernelError> {
        self.needed(self.info.offset(name), name)
    }

    fn size(&self, name: &'static str) -> Result<u64, KernelError> {
        let size = self.needed(self.info.size(name), name)?;
        if (1..=4096).contains(&size) {
            return Ok(size);
        }
        Err(InfoError::BadValue {
            key: format!("SIZE({name})"),
            value: size.to_string(),
            expected: "a structure of the log has at most a page",
        }
        .into())
    }

    fn needed(&self, value: Option<u64>, key: &'static str) -> Result<u64, KernelError> {
        let advice = "the dump has no log that can be found";
        let missing = InfoError::MissingKey { key, purpose: "finding the kernel's log", advice };
        value.ok_or(missing.into())
    }
}

/// Returns the word of `N` bytes in `bytes`; 0 past their end.
fn field<const N: usize>(bytes: &[u8], at: u64) -> [u8; N] {
    let found = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}

/// Returns bytes as text, and the bytes themselves if they are not UTF-8.
fn decoded(bytes: Vec<u8>) -> (String, Option<Vec<u8>>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(error.into_bytes())),
    }
}

/// Returns text up to its terminating zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn structure(what: &'static str) -> impl Fn(TranslateError) -> KernelError {
    move |source| KernelError::Structure { what, source }
}
