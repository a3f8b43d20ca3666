//! Sources of memory: files of any format, split sets, simulated machines.

use std::path::{Path, PathBuf};

use pagehaul_elfcore::notes;
use pagehaul_encryption::{Authentic, MaybeEncrypted, decrypted};
use pagehaul_kdump::Flattened;
use pagehaul_kdump::{KdumpFile, SplitError, SplitSet};
use pagehaul_physmem::file::{PlainFile, ReadAt, is_url, shown};
use pagehaul_physmem::{MapPolicy, MappedFile, OpenError, PhysMemory, Wrap};

use crate::elf::ElfVmcore;
use crate::image::{LIME_MAGIC, Layout, MemoryImage};
use crate::kind::SourceKind;
use crate::supplied::Supplied;

/// Memory of one machine, in one file or several.
pub struct Source {
    /// The path of the first, as messages show it.
    shown: PathBuf,
    paths: Vec<PathBuf>,
    memory: Supplied,
    remarks: Vec<String>,
    /// Of each file that is encrypted, what was found to be authentic.
    authentic: Vec<Option<Authentic>>,
}

/// Why files cannot be a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// One of them cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// They do not belong together.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// More than one was given, and this one cannot be a part.
    #[error("{path} is {kind}, which cannot be part of a split set: name it alone", path = path.display())]
    Alone {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
}

impl Source {
    /// Opens a file of any format that says what it is.
    pub fn open(path: &Path, policy: MapPolicy) -> Result<Self, OpenError> {
        let (kind, authentic) = open_kind(path, None, policy)?;
        Ok(Self::new(vec![path.to_owned()], kind, vec![authentic]))
    }

    /// Opens a raw image of physical memory.
    pub fn open_raw(path: &Path, layout: &Layout, policy: MapPolicy) -> Result<Self, OpenError> {
        let (kind, authentic) = open_kind(path, Some(layout), policy)?;
        Ok(Self::new(vec![path.to_owned()], kind, vec![authentic]))
    }

    /// Returns a source of memory that is in no file, called `name` in messages.
    pub fn simulated(name: &Path, memory: Box<dyn PhysMemory>) -> Self {
        Self::new(vec![name.to_owned()], SourceKind::Simulated(memory), Vec::new())
    }

    /// Opens one file, or the parts of a split set in any order, flattened or not.
    pub fn open_all(paths: &[PathBuf], policy: MapPolicy) -> Result<Self, SourceError> {
        if let [path] = paths {
            return Ok(Self::open(path, policy)?);
        }
        let mut authentic = Vec::new();
        let part = |path: &PathBuf| {
            let (kind, of_part) = open_kind(path, None, policy)?;
            authentic.push(of_part);
            match kind {
                SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => Ok(dump),
                SourceKind::Elf(_) | SourceKind::Split(_) | SourceKind::Simulated(_) => {
                    Err(SourceError::Alone { path: shown(path), kind: "an ELF file" })
                }
                SourceKind::Image(_) => {
                    Err(SourceError::Alone { path: shown(path), kind: "an image of memory" })
                }
            }
        };
        let parts = paths.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(paths.to_vec(), SourceKind::Split(SplitSet::new(parts)?), authentic))
    }

    fn new(paths: Vec<PathBuf>, kind: SourceKind, authentic: Vec<Option<Authentic>>) -> Self {
        Self {
            shown: paths.first().map(|path| shown(path)).unwrap_or_default(),
            paths,
            memory: Supplied::new(kind),
            remarks: Vec::new(),
            authentic,
        }
    }

    /// Returns its path, as messages show it; of several files, the first.
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// Returns all its files.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What it is.
    pub fn kind(&self) -> &SourceKind {
        self.memory.kind()
    }

    /// The memory in it.
    pub fn memory(&self) -> &dyn PhysMemory {
        &self.memory
    }

    /// Replaces its notes, by what was found in its memory.
    pub fn supply_notes(&mut self, notes: Vec<u8>) {
        self.memory.supply_notes(notes);
    }

    /// Has all reads of [`memory`](Self::memory) go through `wrap`, which replaces an earlier one.
    pub fn read_through(&mut self, wrap: Box<dyn Wrap>) {
        self.memory.read_through(wrap);
    }

    /// Returns whether reads go through what changes them.
    pub fn is_changed(&self) -> bool {
        self.memory.is_changed()
    }

    /// Adds a sentence on how it was opened.
    pub fn add_remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Returns sentences on how it was opened. They are no faults.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns its dumps in kdump format; none for an ELF file.
    pub fn dumps(&self) -> &[KdumpFile] {
        match self.kind() {
            SourceKind::Elf(_) | SourceKind::Simulated(_) | SourceKind::Image(_) => &[],
            SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => std::slice::from_ref(dump),
            SourceKind::Split(set) => set.parts(),
        }
    }

    /// Whether one of its files is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.authentic.iter().any(Option::is_some)
    }

    /// Returns what was found to be authentic of file number `index`, if that is encrypted.
    pub fn authentic(&self, index: usize) -> Option<&Authentic> {
        self.authentic.get(index)?.as_ref()
    }

    /// Returns its dump level, 0 for a vmcore.
    pub fn level(&self) -> u32 {
        self.dumps().first().map_or(0, KdumpFile::dump_level)
    }

    /// Whether it lacks pages or notes that it should have, as far as is known without reading each page:
    /// [`warnings`](Self::warnings) names them.
    pub fn is_incomplete(&self) -> bool {
        !self.memory().faults().is_empty()
    }

    /// Whether it lacks pages that its dump should have: it is incomplete or truncated.
    pub fn lacks_pages(&self) -> bool {
        self.is_incomplete() || self.is_truncated()
    }

    /// Whether one of its dumps in kdump format ends before the data of its last page: see [`KdumpFile::is_truncated`]. Truncated
    /// vmcores and flattened streams, whose end is marked, are [incomplete](Self::is_incomplete).
    pub fn is_truncated(&self) -> bool {
        match self.kind() {
            SourceKind::Kdump(dump) => dump.is_truncated(),
            SourceKind::Split(set) => set.parts().iter().any(KdumpFile::is_truncated),
            SourceKind::Elf(_)
            | SourceKind::Flattened(_)
            | SourceKind::Image(_)
            | SourceKind::Simulated(_) => false,
        }
    }

    /// Whether a page that was read so far is missing or damaged, which only the data of dumps in kdump format can tell, or could not be
    /// read.
    pub fn met_damage(&self) -> bool {
        match self.kind() {
            SourceKind::Elf(vmcore) => vmcore.has_failed(),
            SourceKind::Image(image) => image.has_failed(),
            _ => self.dumps().iter().any(KdumpFile::met_damage),
        }
    }

    /// Returns the faults of its files, each with the file's name.
    pub fn warnings(&self) -> Vec<String> {
        let name = match self.paths.len() {
            0 | 1 => self.path().display().to_string(),
            count => format!("the set of {count} files"),
        };
        self.memory().faults().into_iter().map(|fault| format!("{name}: {fault}")).collect()
    }
}

/// Files of memory that are not read, by how they start, and what to do.
const OTHERS: [(&[u8], &str); 4] = [
    (
        b"LibvirtQemudSave",
        "this is what `virsh save` and `virsh dump` write without --memory-only; use `virsh dump --memory-only`",
    ),
    (b"QEVM", "this is a migration stream of QEMU; use its dump-guest-memory or pmemsave"),
    (b"AVML", "this is a compressed image by AVML; `avml-convert` makes one in LiME's format of it"),
    (
        b"PAGEHAUL-CKPT",
        "a checkpoint of processes, not the memory of a machine: `pagehaul info` and `verify` describe and check it, one at a time, \
         and `pagehaul restart` restarts them",
    ),
];

/// Opens a file of the system, or, by a URL, one of a server; an encrypted one as what it holds.
pub fn open_file(path: &Path) -> Result<Box<dyn ReadAt>, OpenError> {
    let file = if is_url(path) { open_url(path)? } else { Box::new(PlainFile::open(path)?) };
    Ok(match decrypted(file)? {
        MaybeEncrypted::Plain(file) => file,
        MaybeEncrypted::Encrypted(file) => Box::new(file),
    })
}

#[cfg(feature = "remote")]
fn open_url(url: &Path) -> Result<Box<dyn ReadAt>, OpenError> {
    Ok(Box::new(pagehaul_remote::RemoteFile::open(url)?))
}

#[cfg(not(feature = "remote"))]
fn open_url(url: &Path) -> Result<Box<dyn ReadAt>, OpenError> {
    let what =
        "this build of pagehaul reads no URLs; take one with the feature `remote`, or download the file"
            .into();
    Err(OpenError::Unsupported { path: shown(url), what })
}

/// How files are opened whose bytes are read in place.
struct Opening<'a, F> {
    layout: Option<&'a Layout>,
    open_elf: fn(F, MapPolicy) -> Result<ElfVmcore, OpenError>,
    map: fn(F, MapPolicy) -> MappedFile,
    policy: MapPolicy,
}

/// Opens a file; with a layout, one that says nothing of itself. Also returns what of an encrypted one is found to be authentic.
fn open_kind(
    path: &Path,
    layout: Option<&Layout>,
    policy: MapPolicy,
) -> Result<(SourceKind, Option<Authentic>), OpenError> {
    if is_url(path) {
        return recognize(open_url(path)?, unmapped(layout, policy));
    }
    let opening = Opening { layout, open_elf: ElfVmcore::open, map: MappedFile::new, policy };
    recognize(PlainFile::open(path)?, opening)
}

/// How what cannot be mapped is opened.
fn unmapped<F: ReadAt + 'static>(layout: Option<&Layout>, policy: MapPolicy) -> Opening<'_, F> {
    Opening {
        layout,
        open_elf: |file, _| ElfVmcore::open_unmapped(Box::new(file)),
        map: |file, _| MappedFile::unmapped(Box::new(file)),
        policy,
    }
}

fn recognize<F: ReadAt + 'static>(
    file: F,
    opening: Opening<'_, F>,
) -> Result<(SourceKind, Option<Authentic>), OpenError> {
    // What it decrypts to is not decrypted again.
    match decrypted(file)? {
        MaybeEncrypted::Plain(file) => Ok((recognize_contents(file, opening)?, None)),
        MaybeEncrypted::Encrypted(file) => {
            let authentic = file.known_authentic();
            let kind = recognize_contents(file, unmapped(opening.layout, opening.policy))?;
            Ok((kind, Some(authentic)))
        }
    }
}

fn recognize_contents<F: ReadAt + 'static>(
    file: F,
    opening: Opening<'_, F>,
) -> Result<SourceKind, OpenError> {
    let Opening { layout, open_elf, map, policy } = opening;
    if let Some(layout) = layout {
        return Ok(SourceKind::Image(MemoryImage::open_raw(map(file, policy), layout)?));
    }
    let mut magic = [0; 32];
    let got = file.read_at(0, &mut magic).map_err(|source| OpenError::Io {
        path: file.path().to_owned(),
        action: "read the first bytes of",
        source,
    })?;
    let magic = &magic[..got];
    if magic.starts_with(b"\x7fELF") {
        let path = file.path().to_owned();
        let vmcore = open_elf(file, policy)?;
        refuse_process(&vmcore, path)?;
        return Ok(SourceKind::Elf(vmcore));
    }
    if magic.starts_with(b"makedumpfile") {
        let file = Flattened::open(file)?;
        let mut magic = [0; 4];
        // An unreadable file is reported when the dump is opened.
        let is_elf = file.read_exact_at(0, &mut magic).is_ok() && magic == *b"\x7fELF";
        return Ok(match is_elf {
            true => SourceKind::Elf(ElfVmcore::open_flattened(file)?),
            false => SourceKind::Flattened(KdumpFile::open_flattened(file)?),
        });
    }
    if magic.starts_with(b"KDUMP   ") || magic.starts_with(b"DISKDUMP") {
        return Ok(SourceKind::Kdump(KdumpFile::open(Box::new(file))?));
    }
    if magic.starts_with(&LIME_MAGIC) {
        return Ok(SourceKind::Image(MemoryImage::open_lime(map(file, policy))?));
    }
    Err(OpenError::Format {
        path: file.path().to_owned(),
        offset: 0,
        what: if magic.starts_with(b"-----BEGIN AGE") {
            "encrypted (age) as text; `age -d` decrypts it".into()
        } else if let Some((_, what)) = OTHERS.iter().find(|(start, _)| magic.starts_with(start)) {
            (*what).into()
        } else if is_record(magic) {
            "a record of pstore, the end of a crashed kernel's log, not its memory: `pagehaul triage` and `pagehaul facts` take all \
             records of the crash"
                .into()
        } else if magic.is_empty() {
            "the file is empty; expected a vmcore or a dump".into()
        } else if let Some(program) = compressed_by(magic) {
            let or = if program == "zstd" {
                "; a core of a process, by `pagehaul core`, is described by `pagehaul info`"
            } else {
                ""
            };
            format!("compressed by {program}: decompress it first (`{program} -d`){or}")
        } else {
            "neither an ELF vmcore nor a kdump-compressed or flattened dump nor an image by LiME starts here; of a raw image of \
             memory, --layout says where its bytes belong"
                .into()
        },
    })
}

/// Returns whether a file may be a record of pstore: its first line is such as `Panic#1 Part1`.
fn is_record(magic: &[u8]) -> bool {
    let word = magic.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let rest = &magic[word..];
    let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
    let part = rest.get(1 + digits..).and_then(|rest| rest.strip_prefix(b" Part"));
    // A number of 32 bits.
    let is_number = |part: &[u8]| part.iter().take_while(|byte| byte.is_ascii_digit()).count() <= 10;
    word > 0 && digits > 0 && rest.starts_with(b"#") && part.is_some_and(is_number)
}

/// Refuses the core of a process: it has addresses of that process, which would pass for physical ones.
fn refuse_process(vmcore: &dyn PhysMemory, path: PathBuf) -> Result<(), OpenError> {
    let Some(process) = notes::process(vmcore.notes()) else { return Ok(()) };
    // `pr_fname` of `struct elf_prpsinfo` on 64-bit machines.
    let name = process.desc.get(40..56).unwrap_or_default();
    let name = String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    let what = format!(
        "the core of a process ({name}), not of a machine: gdb opens it, `pagehaul info` and `verify` describe and check it"
    );
    Err(OpenError::Unsupported { path, what })
}

/// Returns the program that compressed a file with these first bytes, by RFC 8878, RFC 1952 and the .xz file format.
fn compressed_by(magic: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], _); 3] =
        [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz")];
    known.into_iter().find(|(start, _)| magic.starts_with(start)).map(|(_, program)| program)
}
