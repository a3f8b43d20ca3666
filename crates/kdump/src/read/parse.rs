use std::ops::Range;

use pagehaul_machine::{PageSize, Platform};
use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;

use crate::format::UtsName;
use crate::format::byte_layout::{ByteLayout, LARGEST_SUB_HEADER};
use crate::format::{
    DISKDUMP_SIGNATURE, DiskDumpHeader, MAX_PFNS, NewUtsname, SIGNATURE, UTS_LEN, VERSION, flags,
};

/// Bytes of the first header.
const HEADER: usize = size_of::<DiskDumpHeader>();

/// The contents of the headers of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Header version, 1 to 6.
    pub version: u32,
    /// The crashed machine.
    pub uts: UtsName,
    /// When it crashed: seconds since 1970, 0 if not known.
    pub crash_time: i64,
    /// [`flags`] of the header.
    pub status: u32,
    /// How many CPUs left their registers.
    pub nr_cpus: u32,
    /// The dump level: the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free.
    pub dump_level: u32,
    /// Physical address of the kernel image minus its link address (two's complement).
    pub phys_base: u64,
    /// Bytes per block and page.
    pub block_size: u32,
    /// One more than the highest PFN.
    pub max_mapnr: u64,
    /// The PFNs of this part, if the file is one part of a split dump.
    pub split: Option<Range<u64>>,
    /// Pages the machine has.
    pub ram_pages: u64,
    /// Pages in this file.
    pub dumped_pages: u64,
}

impl Info {
    /// Returns whether the dump is marked incomplete.
    pub fn incomplete(&self) -> bool {
        self.status & flags::INCOMPLETE != 0
    }
}

/// The headers, and the offsets of everything else.
pub(super) struct Parsed {
    pub platform: Platform,
    pub byte_layout: ByteLayout,
    pub info: Info,
    /// The end of headers and notes; the offset of bitmap 1 in versions that do not say.
    pub headers_end: u64,
    pub bitmap1: u64,
    pub bitmap2: u64,
    pub descriptors: u64,
    /// Offset and size; `None` if the version or the file has none. Not checked against the file yet.
    pub vmcoreinfo: Option<(u64, u64)>,
    pub notes: Option<(u64, u64)>,
    pub eraseinfo: Option<(u64, u64)>,
}

pub(super) fn parse(file: &dyn ReadAt) -> Result<Parsed, OpenError> {
    let (bytes, byte_layout) = read_header(file)?;
    let header = byte_layout.main_header(&bytes);
    let version = header.version;
    // `ByteLayout::of` checked that it is a page size.
    let block = u64::from(header.block_size.unsigned_abs());
    let mut sub = [0; LARGEST_SUB_HEADER];
    read_part(file, block, &mut sub, "the sub header")?;
    let sub = byte_layout.sub_header(&sub);
    let bad = |offset: u64, what: String| format_error(file, offset, what);

    let max_mapnr = match (version, sub.max_mapnr_64) {
        (6.., wide @ 1..) => wide,
        _ => header.max_mapnr.into(),
    };
    if max_mapnr > MAX_PFNS {
        return Err(bad(
            block,
            format!(
                "{max_mapnr} page frames exceed physical addresses of 52 bits: the sub header is damaged"
            ),
        ));
    }
    let sub_blocks =
        u64::try_from(header.sub_hdr_size).ok().filter(|&blocks| blocks >= 1).ok_or_else(|| {
            bad(
                0,
                format!(
                    "the header gives the sub header {} blocks; expected at least 1",
                    header.sub_hdr_size
                ),
            )
        })?;
    let blocks = u64::from(header.bitmap_blocks);
    let needed = max_mapnr.div_ceil(block * 8);
    if blocks < needed {
        return Err(bad(
            0,
            format!(
                "{blocks} blocks of bitmaps are too few for {max_mapnr} page frames; expected {}",
                2 * needed
            ),
        ));
    }
    let bitmap1 = (1 + sub_blocks) * block;
    let descriptors = bitmap1 + blocks * block;
    if descriptors > file.size() {
        return Err(bad(
            bitmap1,
            format!(
                "the bitmaps should end at {descriptors:#x}, but the file ends at {:#x}: it is truncated, and without \
                 them no page can be found",
                file.size()
            ),
        ));
    }
    // Dumps of all pages may have a single bitmap, which serves as both.
    let bitmap2 = if blocks >= 2 * needed { bitmap1 + blocks / 2 * block } else { bitmap1 };

    let part = match version {
        6.. => sub.start_pfn_64..sub.end_pfn_64,
        _ => sub.start_pfn..sub.end_pfn,
    };
    let split = (version >= 2 && sub.split != 0).then_some(part);
    if let Some(part) = &split
        && (part.start > part.end || part.end > max_mapnr)
    {
        return Err(bad(
            block,
            format!(
                "a part of PFNs {} to {} does not lie within {max_mapnr} page frames",
                part.start, part.end
            ),
        ));
    }
    let place = |since: i32, (offset, size): (i64, u64)| {
        (version >= since && offset != 0 && size != 0).then_some((offset as u64, size))
    };
    let uts = UtsName::decode(uts_bytes(&bytes));
    let notes = place(4, sub.notes);
    // The tables of a dump that ended early may be behind its data, which then follows the notes.
    let headers_end = notes
        .and_then(|(offset, size)| offset.checked_add(size)?.checked_next_multiple_of(block))
        .filter(|end| (2 * block..bitmap1).contains(end))
        .unwrap_or(bitmap1);
    Ok(Parsed {
        platform: Platform {
            machine: Platform::machine_of(&uts.machine),
            wide: byte_layout.wide,
            big_endian: byte_layout.big_endian,
            page_size: PageSize::new(block).unwrap_or(PageSize::KIB_4),
        },
        byte_layout,
        info: Info {
            version: version as u32,
            uts,
            crash_time: header.tv_sec,
            status: header.status,
            nr_cpus: u32::try_from(header.nr_cpus).unwrap_or(0),
            dump_level: sub.dump_level as u32,
            phys_base: sub.phys_base,
            block_size: block as u32,
            max_mapnr,
            split,
            ram_pages: 0,
            dumped_pages: 0,
        },
        headers_end,
        bitmap1,
        bitmap2,
        descriptors,
        vmcoreinfo: place(3, sub.vmcoreinfo),
        notes,
        eraseinfo: place(5, sub.eraseinfo),
    })
}

fn uts_bytes(header: &[u8; HEADER]) -> &[u8; size_of::<NewUtsname>()] {
    const { assert!(12 + size_of::<NewUtsname>() <= HEADER && size_of::<NewUtsname>() == 6 * UTS_LEN) };
    header[12..].first_chunk().unwrap_or(&[0; size_of::<NewUtsname>()])
}

/// Returns the layout of the header of a kdump-compressed file.
fn byte_layout_of(file: &dyn ReadAt, bytes: &[u8; HEADER]) -> Result<ByteLayout, OpenError> {
    let unsupported = |what: String| Err(OpenError::Unsupported { path: file.path().to_owned(), what });
    if bytes.starts_with(&DISKDUMP_SIGNATURE) {
        return unsupported(
            "this is a dump of the old diskdump facility; only kdump-compressed ones are supported".into(),
        );
    }
    if !bytes.starts_with(&SIGNATURE) {
        return Err(format_error(
            file,
            0,
            "no kdump-compressed dump starts here (\"KDUMP   \" was expected)".into(),
        ));
    }
    let Some(byte_layout) = ByteLayout::of(bytes) else {
        let native = ByteLayout::NATIVE;
        let swapped = native.main_header(bytes).version.swap_bytes();
        // Of a big-endian machine, if only that makes the version a small number.
        let (layout, order) = match (1..=99).contains(&swapped) {
            true => (ByteLayout { big_endian: true, ..native }, "big"),
            false => (native, "little"),
        };
        let header = layout.main_header(bytes);
        return Err(format_error(
            file,
            0,
            format!(
                "the header is not that of any machine (as 64-bit {order}-endian: version {}, blocks of {} bytes, \
                 {} blocks of sub header): it is damaged",
                header.version, header.block_size, header.sub_hdr_size
            ),
        ));
    };
    match byte_layout.main_header(bytes).version {
        1..=VERSION => Ok(byte_layout),
        newer => {
            unsupported(format!("header version {newer} is newer than {VERSION}, the last one supported"))
        }
    }
}

/// Reads the header. In a stream the status word may be the last record, since crash prefers an earlier record to a later
/// one. A stream that was truncated before it is incomplete. (Only 64-bit writers do so.)
fn read_header(file: &dyn ReadAt) -> Result<([u8; HEADER], ByteLayout), OpenError> {
    let status = ByteLayout::NATIVE.status_offset();
    let mut bytes = [0; HEADER];
    read_part(file, 0, &mut bytes[..status], "the header")?;
    read_part(file, status as u64 + 4, &mut bytes[status + 4..], "the header")?;
    let mut word = [0; 4];
    let cut = match file.read_exact_at(status as u64, &mut word) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => true,
        Err(source) => {
            return Err(OpenError::Io { path: file.path().to_owned(), action: "read the header of", source });
        }
        Ok(()) => false,
    };
    bytes[status..status + 4].copy_from_slice(&word);
    let byte_layout = byte_layout_of(file, &bytes)?;
    if cut {
        bytes[status..status + 4].copy_from_slice(&match byte_layout.big_endian {
            true => flags::INCOMPLETE.to_be_bytes(),
            false => flags::INCOMPLETE.to_le_bytes(),
        });
    }
    Ok((bytes, byte_layout))
}

/// Fills `buf`. An error names the section of the dump.
pub(super) fn read_part(file: &dyn ReadAt, offset: u64, buf: &mut [u8], what: &str) -> Result<(), OpenError> {
    file.read_exact_at(offset, buf).map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                format!("the file ends at {:#x}: it is truncated", file.size())
            }
            _ => error.to_string(),
        };
        format_error(file, offset, format!("cannot read {what} of the dump: {reason}"))
    })
}

pub(super) fn format_error(file: &dyn ReadAt, offset: u64, what: String) -> OpenError {
    OpenError::Format { path: file.path().to_owned(), offset, what }
}
