//! Sources: whatever kind of file memory is read from.

use std::path::{Path, PathBuf};

use pagehaul_kdump::KdumpFile;
use pagehaul_kdump::flat::Flattened;
use pagehaul_memory::elf::ElfVmcore;
use pagehaul_memory::file::{PlainFile, ReadAt};
use pagehaul_memory::{MapPolicy, OpenError, PhysMemory};

/// `e_machine` of x86_64 (`include/uapi/linux/elf-em.h`).
const EM_X86_64: u16 = 62;

/// What kind of file a source is.
pub enum SourceKind {
    /// An ELF64 vmcore.
    Elf(ElfVmcore),
    /// A kdump-compressed file.
    Kdump(KdumpFile),
    /// A kdump-compressed file in flattened form.
    Flattened(KdumpFile),
}

/// Memory to take a dump of.
pub struct Source {
    path: PathBuf,
    kind: SourceKind,
}

impl Source {
    /// Opens `path`, whatever it is.
    pub fn open(path: &Path, policy: MapPolicy) -> Result<Self, OpenError> {
        let file = PlainFile::open(path)?;
        let mut magic = [0; 16];
        let got = file.read_at(0, &mut magic).map_err(|source| OpenError::Io {
            path: path.to_owned(),
            action: "read the first bytes of",
            source,
        })?;
        let magic = &magic[..got];
        let kind = if magic.starts_with(b"\x7fELF") {
            let vmcore = ElfVmcore::open(file, policy)?;
            if vmcore.machine() != EM_X86_64 {
                return Err(OpenError::Unsupported {
                    path: path.to_owned(),
                    what: format!(
                        "this is a vmcore of another machine (ELF machine {}); only x86_64 (62) is supported",
                        vmcore.machine()
                    ),
                });
            }
            SourceKind::Elf(vmcore)
        } else if magic.starts_with(b"makedumpfile") {
            SourceKind::Flattened(KdumpFile::open_flattened(Flattened::open(file)?)?)
        } else if magic.starts_with(b"KDUMP   ") || magic.starts_with(b"DISKDUMP") {
            SourceKind::Kdump(KdumpFile::open(Box::new(file))?)
        } else {
            return Err(OpenError::Format {
                path: path.to_owned(),
                offset: 0,
                what: if magic.is_empty() {
                    "the file is empty; expected a vmcore or a dump".into()
                } else {
                    "neither an ELF vmcore nor a kdump-compressed or flattened dump starts here".into()
                },
            });
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn kind(&self) -> &SourceKind {
        &self.kind
    }

    /// The memory in it.
    pub fn memory(&self) -> &dyn PhysMemory {
        match &self.kind {
            SourceKind::Elf(vmcore) => vmcore,
            SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => dump,
        }
    }

    /// The level of the dump it is, 0 for a vmcore.
    pub(crate) fn level(&self) -> u32 {
        match &self.kind {
            SourceKind::Elf(_) => 0,
            SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => dump.dump_level(),
        }
    }

    /// Why the source may lack pages that it should have, where that is so.
    pub(crate) fn remark(&self) -> Option<String> {
        let path = self.path.display();
        match &self.kind {
            SourceKind::Elf(vmcore) => {
                let missing = vmcore.missing_bytes();
                if vmcore.is_incomplete() {
                    return Some(format!("{path} is marked incomplete: pages are missing"));
                }
                (missing > 0)
                    .then(|| format!("{path} is cut: {missing} bytes of memory are missing at its end"))
            }
            SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => {
                dump.is_incomplete().then(|| format!("{path} is marked incomplete: pages are missing"))
            }
        }
    }
}
