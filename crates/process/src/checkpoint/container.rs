//! The file that holds a checkpoint: CRIU's images, cut into blocks, each a zstd frame, in the order they came.
//!
//! ```text
//! header   MAGIC, u32 flags (1: incomplete), u32 zero                                24 bytes
//! blocks   zstd frames of at most 1 MiB of one image each
//! index    about: u32 length, JSON; u32 count of images; per image: u32 length of name, name, u32 count of blocks,
//!          per block: u64 offset, u32 stored bytes, u32 bytes, u64 XXH3 of the stored bytes
//!          with a base or runs only: u32 length of its path, path, u32 length of its ID, ID (both empty without a base); per
//!          image: u32 count of runs, per run: u64 bytes, u32 and u64 where they are:
//!              0, 0                           the next bytes of the image's blocks
//!              0xffffffff, offset             the bytes of its blocks from this offset on
//!              image in the base + 1, offset  bytes of that image
//! footer   u64 offset of the index, u64 its length, u64 XXH3 of it, MAGIC           40 bytes
//! ```
//! An image without runs is what its blocks hold. One with runs is put together: its blocks hold what the base does not have, and
//! pages that were written while the process ran, of which some may have been written to since, and are in no run. The base is another
//! container, whose path is relative to the directory of this one. Its ID is in the JSON.
//!
//! All numbers are little-endian. Every byte is covered: blocks and index by checksums, header and footer by what they
//! have to say.
//!
//! An encrypted container is all of this in age format. It is written from its first byte to its last, so its header is never marked as
//! incomplete: one that its writer did not finish lacks the last chunk.

use std::fmt;
use std::path::{Path, PathBuf};

use pagehaul_encryption::{MaybeEncrypted, decrypted};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use twox_hash::XxHash3_64;

use crate::error::ProcessError;
use crate::error::failed;

/// First and last bytes.
pub(crate) const MAGIC: &[u8; 16] = b"PAGEHAUL-CKPT\0\0\x01";
/// Bytes of the header.
pub(crate) const HEADER: u64 = 24;
const FOOTER: u64 = 40;
/// Maximum size of a block, uncompressed.
pub(crate) const BLOCK: usize = 1 << 20;
/// Maximum size of a compressed block: incompressible data grows a little.
const MAX_STORED: u32 = (BLOCK + BLOCK / 8) as u32;
/// Maximum size of an index: one of 1 GiB stands for 40 TiB of images.
const MAX_INDEX: u64 = 1 << 30;
/// Maximum size of an image that is put together: all memory that a process can have.
const MAX_IMAGE: u64 = 1 << 57;

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    pub(crate) bytes: u32,
    pub(crate) checksum: u64,
}

/// Contiguous bytes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    pub(crate) from: Origin,
}

/// Where a run's bytes are. The runs of an image that are in its blocks are all `Next`, or all `Held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In the next bytes of the image's blocks.
    Next,
    /// In the image's blocks. They begin at this offset, counted from the first byte of the first block.
    Held(u64),
    /// In an image of the base: its number, and the offset in it.
    Base(u32, u64),
}

/// In place of an image of the base: bytes of the image's own blocks.
const HELD: u32 = u32::MAX;

impl Origin {
    fn from_numbers(image: u32, offset: u64) -> Self {
        match image {
            0 => Self::Next,
            HELD => Self::Held(offset),
            image => Self::Base(image - 1, offset),
        }
    }

    fn numbers(self) -> (u32, u64) {
        match self {
            Self::Next => (0, 0),
            Self::Held(offset) => (HELD, offset),
            Self::Base(image, offset) => (image + 1, offset),
        }
    }
}

/// One of CRIU's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
    /// Empty: all of it is in the blocks.
    pub(crate) runs: Vec<Run>,
}

impl Image {
    /// Whether it describes the memory of a process, of which there is one each (`mm-PID.img`).
    pub(crate) fn is_of_a_process(&self) -> bool {
        self.name.starts_with("mm-")
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        match self.runs.as_slice() {
            [] => self.own_bytes(),
            runs => runs.iter().map(|run| run.bytes).sum(),
        }
    }

    /// Those of its bytes that are in the base.
    pub(crate) fn base_bytes(&self) -> u64 {
        let in_base = self.runs.iter().filter(|run| matches!(run.from, Origin::Base(..)));
        in_base.map(|run| run.bytes).sum()
    }

    /// Bytes in its blocks that are no part of it: pages that were written to after they had been spilled.
    pub(crate) fn unused_bytes(&self) -> u64 {
        let held = |run: &Run| matches!(run.from, Origin::Held(_)).then_some(run.bytes);
        let mut held = self.runs.iter().filter_map(held).peekable();
        match held.peek() {
            Some(_) => self.own_bytes().saturating_sub(held.sum()),
            None => 0,
        }
    }

    /// What its blocks hold.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.bytes)).sum()
    }
}

/// The container that has what this one lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) path: String,
    pub(crate) id: String,
}

/// What is in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// JSON: what it is a checkpoint of.
    pub(crate) about: String,
    pub(crate) images: Vec<Image>,
    pub(crate) base: Option<Base>,
}

impl Index {
    /// What it is a checkpoint of.
    pub(crate) fn about(&self) -> serde_json::Value {
        serde_json::from_str(&self.about).unwrap_or_default()
    }
}

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

pub(crate) fn header(incomplete: bool) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(u32::from(incomplete).to_le_bytes());
    out.extend([0; 4]);
    out
}

/// Index and footer of a container whose blocks end at `offset`.
pub(crate) fn tail(index: &Index, offset: u64) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, &index.about);
    out.extend((index.images.len() as u32).to_le_bytes());
    for image in &index.images {
        text(&mut out, &image.name);
        out.extend((image.blocks.len() as u32).to_le_bytes());
        for block in &image.blocks {
            out.extend(block.offset.to_le_bytes());
            out.extend(block.stored.to_le_bytes());
            out.extend(block.bytes.to_le_bytes());
            out.extend(block.checksum.to_le_bytes());
        }
    }
    if index.base.is_some() || index.images.iter().any(|image| !image.runs.is_empty()) {
        let (path, id) = index.base.as_ref().map_or(("", ""), |base| (&base.path, &base.id));
        text(&mut out, path);
        text(&mut out, id);
        for image in &index.images {
            out.extend((image.runs.len() as u32).to_le_bytes());
            for run in &image.runs {
                let (image, offset) = run.from.numbers();
                out.extend(run.bytes.to_le_bytes());
                out.extend(image.to_le_bytes());
                out.extend(offset.to_le_bytes());
            }
        }
    }
    let (length, sum) = (out.len() as u64, checksum(&out));
    for word in [offset, length, sum] {
        out.extend(word.to_le_bytes());
    }
    out.extend(MAGIC);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// An open container.
pub(crate) struct Container {
    file: Box<dyn ReadAt>,
    pub(crate) path: PathBuf,
    /// Bytes of the file, which are more than those of the container if it is encrypted.
    pub(crate) file_bytes: u64,
    pub(crate) index: Index,
}

impl fmt::Debug for Container {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Container").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The container's name in a directory.
const IN_DIRECTORY: &str = "checkpoint.pagehaul";

/// Returns the container that a path names: the path itself, or the container in this directory.
pub(crate) fn container_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(IN_DIRECTORY) } else { path.to_owned() }
}

/// Returns whether a file starts, or at least ends, as a container does; of an encrypted file, if it can be opened.
pub(crate) fn is_container(path: &Path) -> bool {
    let Ok(Opened { file, .. }) = open(path) else { return false };
    [Some(0), file.size().checked_sub(MAGIC.len() as u64)].into_iter().flatten().any(|at| {
        let mut bytes = [0; 16];
        file.read_exact_at(at, &mut bytes).is_ok() && bytes == *MAGIC
    })
}

/// A file, decrypted where it is encrypted.
struct Opened {
    file: Box<dyn ReadAt>,
    file_bytes: u64,
    /// Whether it lacks its last chunk.
    is_cut: bool,
}

fn open(path: &Path) -> Result<Opened, ProcessError> {
    let plain = PlainFile::open_regular(path).map_err(failed(path, "open"))?;
    let file_bytes = plain.size();
    Ok(match decrypted(plain)? {
        MaybeEncrypted::Plain(file) => Opened { file: Box::new(file), file_bytes, is_cut: false },
        MaybeEncrypted::Encrypted(file) => {
            Opened { is_cut: !file.is_complete(), file: Box::new(file), file_bytes }
        }
    })
}

impl Container {
    /// Opens a container and reads its index. Fails if it is damaged or incomplete.
    pub(crate) fn open(path: &Path) -> Result<Self, ProcessError> {
        let damaged = |what: String| ProcessError::Damaged { path: path.to_owned(), what };
        let Opened { file, file_bytes, is_cut } = open(path)?;
        let size = file.size();
        let mut start = [0; HEADER as usize];
        if size >= HEADER {
            file.read_exact_at(0, &mut start).map_err(|why| damaged(format!("byte 0x0: {why}")))?;
        }
        if size < HEADER + FOOTER && !is_cut || start[..16] != *MAGIC {
            return Err(damaged(
                "it is not a checkpoint written by pagehaul, or damaged: bytes 0x0 to 0x10 are not its magic"
                    .into(),
            ));
        }
        if is_cut {
            return Err(damaged(
                "it is incomplete: the encrypted file (age) lacks its last piece, or that was changed".into(),
            ));
        }
        match start[16..] {
            [0, 0, 0, 0, 0, 0, 0, 0] => {}
            [1, 0, 0, 0, 0, 0, 0, 0] => {
                return Err(damaged("it is incomplete: its writer did not finish".into()));
            }
            _ => return Err(damaged("byte 0x10: its header is damaged".into())),
        }
        let mut footer = [0; FOOTER as usize];
        file.read_exact_at(size - FOOTER, &mut footer).map_err(failed(path, "read"))?;
        let (words, _) = footer.as_chunks::<8>();
        let [offset, length, sum] = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
        let fits =
            offset.checked_add(length) == Some(size - FOOTER) && offset >= HEADER && length <= MAX_INDEX;
        if footer[24..] != *MAGIC || !fits {
            let at = size - FOOTER;
            return Err(damaged(format!("byte {at:#x}: it is truncated, or its footer is damaged")));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(offset, &mut bytes)
            .map_err(|why| damaged(format!("bytes {offset:#x} to {:#x}: its index: {why}", size - FOOTER)))?;
        if checksum(&bytes) != sum {
            return Err(damaged(format!("bytes {offset:#x} to {:#x}: its index is damaged", size - FOOTER)));
        }
        let index = parse(&bytes, offset).ok_or_else(|| damaged("its index is invalid".into()))?;
        Ok(Self { file, path: path.to_owned(), file_bytes, index })
    }

    /// Reads a compressed block, and verifies its checksum.
    pub(crate) fn block(&self, image: &Image, block: &Block) -> Result<Vec<u8>, ProcessError> {
        let mut bytes = vec![0; block.stored as usize];
        let end = block.offset + u64::from(block.stored);
        let why = match self.file.read_exact_at(block.offset, &mut bytes) {
            Ok(()) if checksum(&bytes) == block.checksum => return Ok(bytes),
            Ok(()) => "their checksum differs".to_owned(),
            Err(why) => why.to_string(),
        };
        let what = format!("bytes {:#x} to {end:#x} (of {}) are damaged: {why}", block.offset, image.name);
        Err(ProcessError::Damaged { path: self.path.clone(), what })
    }

    /// Whether it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.file.is_encrypted()
    }

    /// Device and inode of the file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.file.identity()
    }
}

/// Reads an index, whose blocks lie between the header and `end`. Returns `None` if it is invalid.
fn parse(bytes: &[u8], end: u64) -> Option<Index> {
    let mut rest = bytes;
    let about = take_text(&mut rest)?;
    let mut images = Vec::new();
    for _ in 0..take_u32(&mut rest)? {
        let name = take_text(&mut rest)?;
        let count = take_u32(&mut rest)? as usize;
        let mut blocks = Vec::with_capacity(count.min(rest.len() / 24));
        for _ in 0..count {
            let block = Block {
                offset: u64::from_le_bytes(take(&mut rest)?),
                stored: take_u32(&mut rest)?,
                bytes: take_u32(&mut rest)?,
                checksum: u64::from_le_bytes(take(&mut rest)?),
            };
            let inside = block.offset >= HEADER && block.offset.checked_add(block.stored.into())? <= end;
            if !inside || block.stored > MAX_STORED || block.bytes as usize > BLOCK {
                return None;
            }
            blocks.push(block);
        }
        images.push(Image { name, blocks, runs: Vec::new() });
    }
    if rest.is_empty() {
        return Some(Index { about, images, base: None });
    }
    let base = Base { path: take_text(&mut rest)?, id: take_text(&mut rest)? };
    for image in &mut images {
        image.runs = take_runs(&mut rest, image.own_bytes())?;
    }
    let base = Some(base).filter(|base| !base.path.is_empty());
    rest.is_empty().then_some(Index { about, images, base })
}

/// Reads the runs of an image whose blocks hold so many bytes.
fn take_runs(rest: &mut &[u8], held: u64) -> Option<Vec<Run>> {
    let count = take_u32(rest)? as usize;
    let mut runs = Vec::with_capacity(count.min(rest.len() / 20));
    let (mut all, mut next, mut is_by_offset) = (0u64, 0, false);
    for _ in 0..count {
        let bytes = u64::from_le_bytes(take(rest)?);
        let from = Origin::from_numbers(take_u32(rest)?, u64::from_le_bytes(take(rest)?));
        all = all.checked_add(bytes).filter(|all| bytes > 0 && *all <= MAX_IMAGE)?;
        match from {
            Origin::Next => next += bytes,
            Origin::Held(offset) => {
                is_by_offset = offset.checked_add(bytes)? <= held;
                if !is_by_offset {
                    return None;
                }
            }
            Origin::Base(..) => {}
        }
        runs.push(Run { bytes, from });
    }
    let fits = if is_by_offset { next == 0 } else { next == held };
    (runs.is_empty() || fits).then_some(runs)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let length = take_u32(rest)? as usize;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn container(base: Option<Base>) -> (Vec<u8>, Index) {
        let (a, b) = (vec![7; 1000], vec![9; 50]);
        let mut out = header(false);
        let mut block = |bytes: &[u8]| {
            let offset = out.len() as u64;
            out.extend(bytes);
            Block { offset, stored: bytes.len() as u32, bytes: 5000, checksum: checksum(bytes) }
        };
        let runs = match base {
            Some(_) => [(5000, Origin::Next), (4096, Origin::Base(3, 8192)), (5000, Origin::Next)].to_vec(),
            None => [(4000, Origin::Held(6000)), (700, Origin::Held(0))].to_vec(),
        };
        let runs = runs.into_iter().map(|(bytes, from)| Run { bytes, from }).collect();
        let images = vec![
            Image { name: "pages-1.img".into(), blocks: vec![block(&a), block(&b)], runs },
            Image { name: "empty.img".into(), blocks: vec![], runs: vec![] },
        ];
        let index = Index { about: "{}".into(), images, base };
        let offset = out.len() as u64;
        out.extend(tail(&index, offset));
        (out, index)
    }

    fn open(bytes: &[u8]) -> Result<Container, ProcessError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Container::open(file.path())
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_placed() {
        let base = Base { path: "earlier".into(), id: "1-2".into() };
        [None, Some(base)].into_iter().for_each(flipped_bits_are_noticed);
    }

    fn flipped_bits_are_noticed(base: Option<Base>) {
        let (good, index) = container(base);
        let opened = open(&good).unwrap();
        assert_eq!(opened.index, index);
        let whole = |bytes: &[u8]| {
            let opened = open(bytes)?;
            for image in &opened.index.images {
                for block in &image.blocks {
                    opened.block(image, block)?;
                }
            }
            Ok::<_, ProcessError>(())
        };
        whole(&good).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let said = whole(&bad).expect_err("a flipped bit").to_string();
            // One bit is the mark of a container that its writer did not finish.
            assert!(said.contains("byte") || said.contains("incomplete"), "byte {at}: {said}");
        }
        for length in [0, 10, 24, 63, 64, 500, good.len() - 1] {
            assert!(open(&good[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn what_is_not_finished_says_so() {
        let (mut bytes, _) = container(None);
        bytes[..24].copy_from_slice(&header(true));
        assert!(open(&bytes).unwrap_err().to_string().contains("incomplete"));
    }

    #[test]
    fn runs_that_do_not_fit_the_blocks_are_refused() {
        let base = Base { path: "base".into(), id: String::new() };
        let parsed = |runs: &[(u64, Origin)]| {
            let runs = runs.iter().map(|&(bytes, from)| Run { bytes, from }).collect();
            let block = Block { offset: HEADER, stored: 9, bytes: 100, checksum: 0 };
            let images = vec![Image { name: "x".into(), blocks: vec![block], runs }];
            let index = Index { about: String::new(), images, base: Some(base.clone()) };
            let bytes = tail(&index, 0);
            parse(&bytes[..bytes.len() - FOOTER as usize], 1 << 20).is_some()
        };
        let (far, held) = (Origin::Base(7, u64::MAX), Origin::Held);
        assert!(parsed(&[(60, Origin::Next), (MAX_IMAGE - 100, far), (40, Origin::Next)]) && parsed(&[]));
        assert!(parsed(&[(60, held(40)), (9, far), (70, held(0))]));
        for runs in [
            &[(60, Origin::Next)][..],
            &[(101, Origin::Next)],
            &[(100, Origin::Next), (0, far)],
            &[(100, Origin::Next), (MAX_IMAGE, far)],
            &[(100, Origin::Next), (u64::MAX, far)],
            &[(61, held(40))],
            &[(60, held(40)), (1, held(u64::MAX))],
            &[(60, held(40)), (40, Origin::Next)],
        ] {
            assert!(!parsed(runs), "{runs:?}");
        }
    }

    proptest! {
        #[test]
        fn any_index_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes, 1 << 20);
        }
    }
}
