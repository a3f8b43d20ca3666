//! The first blocks of a kdump-compressed file.

use core::mem::offset_of;
use std::ops::Range;

use zerocopy::IntoBytes;

use super::layout::{Layout, LayoutError};
use super::utsname::UtsName;
use super::{DiskDumpHeader, KdumpSubHeader, NewUtsname, SIGNATURE, UTS_LEN, VERSION, flags};

/// The contents of the header and the sub header of a dump.
#[derive(Debug, Clone)]
pub struct Header<'a> {
    /// The crashed machine: `init_uts_ns` from its memory, or OSRELEASE from VMCOREINFO.
    pub uts: UtsName,
    /// When it crashed: seconds since 1970 (CRASHTIME of VMCOREINFO), 0 if not known.
    pub crash_time: i64,
    /// The dump level, 0 to 31.
    pub dump_level: u32,
    /// How many CPUs left their registers in the notes. Written as at least 1: readers take 0 for damage.
    pub nr_cpus: u32,
    /// `phys_base` of the crashed kernel (two's complement).
    pub phys_base: u64,
    /// The codec bit of most pages, of [`flags`]; 0 for none. A hint to readers.
    pub codec: u32,
    /// The ELF notes of the source's PT_NOTE, including VMCOREINFO.
    pub notes: &'a [u8],
    /// The PFNs of this part of a split dump; `None` for a dump in one file.
    pub split: Option<Range<u64>>,
}

/// File offset of the status word, whose INCOMPLETE bit is cleared once everything else is written.
pub const STATUS_OFFSET: u64 = offset_of!(DiskDumpHeader, status) as u64;

/// File offset of the number of blocks between the header and the bitmaps. In the same sector as the status word.
pub const SUB_BLOCKS_OFFSET: u64 = offset_of!(DiskDumpHeader, sub_hdr_size) as u64;

impl Header<'_> {
    /// Returns the bytes of the status word, at [`STATUS_OFFSET`].
    pub fn status(&self, incomplete: bool) -> [u8; 4] {
        let state = if incomplete { flags::INCOMPLETE } else { 0 };
        (self.codec & flags::CODECS | state).to_le_bytes()
    }

    /// Returns the first [`Layout::header_len`] bytes of the file: header, sub header and notes.
    pub fn encode(&self, layout: &Layout, incomplete: bool) -> Result<Vec<u8>, LayoutError> {
        let found = self.notes.len() as u64;
        if found != layout.notes_len() {
            return Err(LayoutError::NotesChanged { expected: layout.notes_len(), found });
        }
        let mut out = Vec::with_capacity(layout.header_len() as usize);
        out.extend_from_slice(self.disk_dump_header(layout, incomplete).as_bytes());
        out.resize(layout.sub_header_offset() as usize, 0);
        out.extend_from_slice(self.sub_header(layout).as_bytes());
        out.extend_from_slice(self.notes);
        out.resize(layout.header_len() as usize, 0);
        Ok(out)
    }

    fn disk_dump_header(&self, layout: &Layout, incomplete: bool) -> DiskDumpHeader {
        DiskDumpHeader {
            signature: SIGNATURE,
            header_version: VERSION.into(),
            utsname: self.uts.encode(),
            tv_sec: self.crash_time.into(),
            status: u32::from_le_bytes(self.status(incomplete)).into(),
            block_size: (layout.block() as i32).into(),
            sub_hdr_size: (layout.sub_blocks() as i32).into(),
            bitmap_blocks: layout.bitmap_blocks().into(),
            max_mapnr: clamp(layout.max_mapnr()).into(),
            nr_cpus: (self.nr_cpus.clamp(1, i32::MAX as u32) as i32).into(),
            ..Default::default()
        }
    }

    /// The sub header, which starts block 1.
    pub(crate) fn sub_header(&self, layout: &Layout) -> KdumpSubHeader {
        let (text_offset, text_size) = pagehaul_elfcore::notes::vmcoreinfo(self.notes)
            .map_or((0, 0), |(offset, text)| (layout.notes_offset() + offset as u64, text.len() as u64));
        let (erased_offset, erased_size) = erased(self.notes)
            .map_or((0, 0), |(offset, text)| (layout.notes_offset() + offset as u64, text.len() as u64));
        // A dump in one file leaves the PFN range at zero, as makedumpfile does.
        let part = self.split.clone().unwrap_or(0..0);
        KdumpSubHeader {
            phys_base: self.phys_base.into(),
            dump_level: (self.dump_level as i32).into(),
            split: i32::from(self.split.is_some()).into(),
            start_pfn: u64::from(clamp(part.start)).into(),
            end_pfn: u64::from(clamp(part.end)).into(),
            offset_vmcoreinfo: (text_offset as i64).into(),
            size_vmcoreinfo: text_size.into(),
            offset_note: if self.notes.is_empty() { 0 } else { layout.notes_offset() as i64 }.into(),
            size_note: (self.notes.len() as u64).into(),
            offset_eraseinfo: (erased_offset as i64).into(),
            size_eraseinfo: erased_size.into(),
            start_pfn_64: part.start.into(),
            end_pfn_64: part.end.into(),
            max_mapnr_64: layout.max_mapnr().into(),
        }
    }
}

/// The record of what was erased, among the notes, as makedumpfile adds it to ELF dumps.
fn erased(notes: &[u8]) -> Option<(usize, &[u8])> {
    let note = pagehaul_elfcore::notes::iter(notes).find(|note| note.name == b"ERASEINFO")?;
    Some((note.offset, note.desc))
}

/// Clamps a value for the 32-bit fields that version 6 keeps next to its 64-bit ones.
fn clamp(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl UtsName {
    /// Unknown fields are "unknown": unless `sysname` is "Linux" and `release`, `version` and `machine` are not empty,
    /// libkdumpfile takes the struct for damaged and knows no architecture.
    fn encode(&self) -> NewUtsname {
        let field = |text: &str, fallback: &str| {
            let text = if text.is_empty() { fallback } else { text };
            let mut out = [0; UTS_LEN];
            let kept = text.len().min(UTS_LEN - 1);
            out[..kept].copy_from_slice(&text.as_bytes()[..kept]);
            out
        };
        NewUtsname {
            sysname: field(&self.sysname, "Linux"),
            nodename: field(&self.nodename, ""),
            release: field(&self.release, "unknown"),
            version: field(&self.version, "unknown"),
            machine: field(&self.machine, "unknown"),
            domainname: field(&self.domainname, ""),
        }
    }
}
