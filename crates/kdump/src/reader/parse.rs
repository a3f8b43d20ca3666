use std::ops::Range;

use pagehaul_memory::OpenError;
use pagehaul_memory::file::ReadAt;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{
    BLOCK_SIZE, DISKDUMP_SIGNATURE, DiskDumpHeader, KdumpSubHeader, MAX_PFNS, SIGNATURE, VERSION, flags,
};
use crate::{STATUS_OFFSET, UtsName};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// What the headers of a dump say.
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
    /// Which page classes were left out: the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free.
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
    /// Whether the writer says that it did not finish.
    pub fn incomplete(&self) -> bool {
        self.status & flags::INCOMPLETE != 0
    }
}

/// The headers and where they say the rest is.
pub(super) struct Parsed {
    pub info: Info,
    pub bitmap1: u64,
    pub bitmap2: u64,
    pub descriptors: u64,
    /// Offset and size; `None` where the version has none or the file says so. Not held against the file yet.
    pub vmcoreinfo: Option<(u64, u64)>,
    pub notes: Option<(u64, u64)>,
    pub eraseinfo: Option<(u64, u64)>,
}

pub(super) fn parse(file: &dyn ReadAt) -> Result<Parsed, OpenError> {
    let header = read_header(file)?;
    check_kind(file, &header)?;
    let version = header.header_version.get();
    let sub: KdumpSubHeader = read_struct(file, BLOCK, "the sub header")?;
    let bad = |offset: u64, what: String| format_error(file, offset, what);

    let max_mapnr = match (version, sub.max_mapnr_64.get()) {
        (6.., wide @ 1..) => wide,
        _ => header.max_mapnr.get().into(),
    };
    if max_mapnr > MAX_PFNS {
        return Err(bad(
            BLOCK,
            format!("{max_mapnr} page frames are more than 52 address bits hold: the sub header is damaged"),
        ));
    }
    let sub_blocks =
        u64::try_from(header.sub_hdr_size.get()).ok().filter(|&blocks| blocks >= 1).ok_or_else(|| {
            bad(
                0,
                format!(
                    "the sub header is said to take {} blocks; at least 1 was expected",
                    header.sub_hdr_size
                ),
            )
        })?;
    let blocks = u64::from(header.bitmap_blocks.get());
    let needed = max_mapnr.div_ceil(BLOCK * 8);
    if blocks < needed {
        return Err(bad(
            0,
            format!(
                "{blocks} blocks of bitmaps are too few for {max_mapnr} page frames: {} were expected",
                2 * needed
            ),
        ));
    }
    let bitmap1 = (1 + sub_blocks) * BLOCK;
    let descriptors = bitmap1 + blocks * BLOCK;
    if descriptors > file.size() {
        return Err(bad(
            bitmap1,
            format!(
                "the bitmaps should end at {descriptors:#x}, but the file ends at {:#x}: it was cut, and without them \
                 no page can be found",
                file.size()
            ),
        ));
    }
    // Dumps of everything may have but one bitmap, which then stands for both.
    let bitmap2 = if blocks >= 2 * needed { bitmap1 + blocks / 2 * BLOCK } else { bitmap1 };

    let part = match version {
        6.. => sub.start_pfn_64.get()..sub.end_pfn_64.get(),
        _ => sub.start_pfn.get()..sub.end_pfn.get(),
    };
    let split = (version >= 2 && sub.split.get() != 0).then_some(part);
    if let Some(part) = &split
        && (part.start > part.end || part.end > max_mapnr)
    {
        return Err(bad(
            BLOCK,
            format!(
                "a part of PFNs {} to {} does not lie within {max_mapnr} page frames",
                part.start, part.end
            ),
        ));
    }
    let place = |since: i32, offset: i64, size: u64| {
        (version >= since && offset != 0 && size != 0).then_some((offset as u64, size))
    };
    Ok(Parsed {
        info: Info {
            version: version as u32,
            uts: UtsName::decode(zerocopy::transmute_ref!(&header.utsname)),
            crash_time: header.tv_sec.get(),
            status: header.status.get(),
            nr_cpus: u32::try_from(header.nr_cpus.get()).unwrap_or(0),
            dump_level: sub.dump_level.get() as u32,
            phys_base: sub.phys_base.get(),
            block_size: BLOCK_SIZE as u32,
            max_mapnr,
            split,
            ram_pages: 0,
            dumped_pages: 0,
        },
        bitmap1,
        bitmap2,
        descriptors,
        vmcoreinfo: place(3, sub.offset_vmcoreinfo.get(), sub.size_vmcoreinfo.get()),
        notes: place(4, sub.offset_note.get(), sub.size_note.get()),
        eraseinfo: place(5, sub.offset_eraseinfo.get(), sub.size_eraseinfo.get()),
    })
}

/// Whether this is a kdump-compressed file of a kind that can be read.
fn check_kind(file: &dyn ReadAt, header: &DiskDumpHeader) -> Result<(), OpenError> {
    let unsupported = |what: String| Err(OpenError::Unsupported { path: file.path().to_owned(), what });
    if header.signature == DISKDUMP_SIGNATURE {
        return unsupported(
            "this is a dump of the old diskdump facility; only kdump-compressed ones are supported".into(),
        );
    }
    if header.signature != SIGNATURE {
        return Err(format_error(
            file,
            0,
            "no kdump-compressed dump starts here (\"KDUMP   \" was expected)".into(),
        ));
    }
    let version = header.header_version.get();
    match version {
        1..=VERSION => {}
        _ if (1..=VERSION).contains(&version.swap_bytes()) => {
            return unsupported(
                "the dump was written by a big-endian machine; only x86_64 is supported".into(),
            );
        }
        7..=99 => {
            return unsupported(format!(
                "header version {version} is newer than {VERSION}, the last one supported"
            ));
        }
        _ => {
            return Err(format_error(file, 0, format!("header version {version} is none of 1 to {VERSION}")));
        }
    }
    let size = header.block_size.get();
    match size {
        _ if size as usize == BLOCK_SIZE => Ok(()),
        1024 | 2048 | 8192 | 16384 | 32768 | 65536 => {
            unsupported(format!("the dump has pages of {size} bytes; only {BLOCK_SIZE} are supported so far"))
        }
        // Where the same field is when `long` has 4 bytes.
        _ if header.as_bytes()[416..420] == (BLOCK_SIZE as u32).to_le_bytes() => {
            unsupported("the dump was written by a 32-bit machine; only x86_64 is supported".into())
        }
        _ => Err(format_error(file, 0, format!("a block size of {size} bytes is none that machines have"))),
    }
}

/// The header. In a stream the status word may be a record of its own that comes last, as crash does not take a later
/// record over an earlier one: if the stream was cut before it, what it would say is clear.
fn read_header(file: &dyn ReadAt) -> Result<DiskDumpHeader, OpenError> {
    const STATUS: usize = STATUS_OFFSET as usize;
    let mut bytes = [0; size_of::<DiskDumpHeader>()];
    read_part(file, 0, &mut bytes[..STATUS], "the header")?;
    read_part(file, STATUS_OFFSET + 4, &mut bytes[STATUS + 4..], "the header")?;
    match file.read_exact_at(STATUS_OFFSET, &mut bytes[STATUS..STATUS + 4]) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            bytes[STATUS..STATUS + 4].copy_from_slice(&flags::INCOMPLETE.to_le_bytes());
        }
        Err(source) => {
            return Err(OpenError::Io { path: file.path().to_owned(), action: "read the header of", source });
        }
        Ok(()) => {}
    }
    Ok(zerocopy::transmute!(bytes))
}

fn read_struct<T: FromBytes + FromZeros + IntoBytes>(
    file: &dyn ReadAt,
    offset: u64,
    what: &str,
) -> Result<T, OpenError> {
    let mut value = T::new_zeroed();
    read_part(file, offset, value.as_mut_bytes(), what)?;
    Ok(value)
}

/// Fills `buf`, or says which part of the dump cannot be read.
pub(super) fn read_part(file: &dyn ReadAt, offset: u64, buf: &mut [u8], what: &str) -> Result<(), OpenError> {
    file.read_exact_at(offset, buf).map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => format!("the file ends at {:#x}; it was cut", file.size()),
            _ => error.to_string(),
        };
        format_error(file, offset, format!("cannot read {what} of the dump: {reason}"))
    })
}

pub(super) fn format_error(file: &dyn ReadAt, offset: u64, what: String) -> OpenError {
    OpenError::Format { path: file.path().to_owned(), offset, what }
}
