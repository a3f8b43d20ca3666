use crate::constants::EM_X86_64;
use crate::program_header::ProgramHeader;
use crate::write::{SECTION_HEADER, count_section, file_header, table_end};

const PAGE: u64 = 4096;

/// Headers and notes of a vmcore, up to its first byte of memory.
///
/// The layout is that of `/proc/vmcore` since it can be mapped (Linux 3.11): program headers, a section header, and the
/// notes on a page boundary, each padded with zeros to whole pages. Program headers come from the caller, between
/// [`start`](Self::start) and [`end`](Self::end), so that none has to be in memory.
#[derive(Debug, Clone, Copy)]
pub struct VmcoreHead<'a> {
    /// `e_machine`; 0 where the source does not say, which x86_64 hypervisors leave so.
    pub machine: u16,
    /// Program headers there is room for, the PT_NOTE included.
    pub room: u64,
    /// The contents of the PT_NOTE.
    pub notes: &'a [u8],
}

impl VmcoreHead<'_> {
    fn notes_offset(&self) -> u64 {
        (table_end(self.room) + SECTION_HEADER).next_multiple_of(PAGE)
    }

    /// Returns the file offset of the first byte of memory, a multiple of 4096.
    pub fn data_offset(&self) -> u64 {
        self.notes_offset() + (self.notes.len() as u64).next_multiple_of(PAGE)
    }

    /// Passes the file header and the PT_NOTE to `put`, for `count` program headers (the PT_NOTE included).
    pub fn start<E>(
        &self,
        count: u64,
        incomplete: bool,
        put: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let machine = if self.machine == 0 { EM_X86_64 } else { self.machine };
        put(&file_header(machine, count, self.room, incomplete))?;
        put(&ProgramHeader::note(self.notes_offset(), self.notes.len() as u64).encode())
    }

    /// Passes to `put` what follows `count` program headers: unused ones, the section header, and the notes.
    pub fn end<E>(&self, count: u64, put: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        zeros(table_end(self.room) - table_end(count), put)?;
        put(&count_section(count))?;
        zeros(self.notes_offset() - table_end(self.room) - SECTION_HEADER, put)?;
        put(self.notes)?;
        let size = self.notes.len() as u64;
        zeros(size.next_multiple_of(PAGE) - size, put)
    }
}

fn zeros<E>(mut count: u64, put: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    while count > 0 {
        let part = count.min(PAGE);
        put(&ZEROS[..part as usize])?;
        count -= part;
    }
    Ok(())
}
