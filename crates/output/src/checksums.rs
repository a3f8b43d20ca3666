//! Checksums of a file, one per extent, in a file next to it: they show whether a copy equals the file, and where it
//! differs.
//!
//! The format is text, one line each:
//! ```text
//! pagehaul-sums 1 xxh3-64 extent 1048576 size 29719181
//! 00b1c2…      the hash of the first extent, 16 hexadecimal digits
//! …
//! end 5f3a…    the hash of all previous lines
//! ```

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pagehaul_physmem::file::{ReadAt, shown};
use twox_hash::XxHash3_64;

use crate::new_file::{self, CreateOptions, Naming, NewFile, OutputError, Special};

/// Bytes per hash: a terabyte has 8 MiB of hashes, and a hash that differs leaves 1 MiB to examine.
pub const EXTENT: usize = 1 << 20;
/// First words of the file.
/// Bytes of checksums that are read: those of a dump of 60 TiB.
const MAX_TEXT: u64 = 1 << 30;
const TITLE: &str = "pagehaul-sums 1 xxh3-64 extent";

/// Returns the hash of an extent: XXH3, 64 bits, seed 0. It detects accidents, not attacks.
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksums of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksums {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of each extent but the last.
    pub extent: u64,
    /// Hashes, in order.
    pub hashes: Vec<u64>,
}

/// Why checksums cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ChecksumError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// The file cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The file does not hold valid checksums.
    #[error("{path}: line {line}: {what}", path = path.display())]
    Format {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What was expected there.
        what: &'static str,
    },
}

impl Checksums {
    /// Returns the path of the checksums of `path`: `PATH.sums`. A query of a URL is for the one object, and is left out.
    pub fn path_of(path: &Path) -> PathBuf {
        let mut name = OsString::from(shown(path));
        name.push(".sums");
        name.into()
    }

    /// Computes the checksums of a whole file.
    pub fn of(file: &dyn ReadAt) -> io::Result<Self> {
        let size = file.size();
        let mut buffer = vec![0; EXTENT];
        let mut hashes = Vec::new();
        for start in (0..size).step_by(EXTENT) {
            let part = &mut buffer[..(size - start).min(EXTENT as u64) as usize];
            file.read_exact_at(start, part)?;
            hashes.push(hash(part));
        }
        Ok(Self { size, extent: EXTENT as u64, hashes })
    }

    /// Encodes them as text.
    pub fn encode(&self) -> String {
        let mut out = format!("{TITLE} {} size {}\n", self.extent, self.size);
        for hash in &self.hashes {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{hash:016x}");
        }
        let end = hash(out.as_bytes());
        let _ = writeln!(out, "end {end:016x}");
        out
    }

    /// Writes them to `path`, readable only by the owner, like the dump. A file that exists is replaced only with
    /// `overwrite`.
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<(), ChecksumError> {
        let mut output = NewFile::create(path, create_options(overwrite, &[]))?;
        let fail = |source| ChecksumError::Io { path: path.to_owned(), action: "write", source };
        io::Write::write_all(&mut &**output.file(), self.encode().as_bytes()).map_err(fail)?;
        output.file().sync_data().map_err(fail)?;
        Ok(output.commit()?)
    }

    /// Reads the checksums in `file`.
    pub fn read(file: &dyn ReadAt) -> Result<Self, ChecksumError> {
        let path = || file.path().to_owned();
        let mut text = vec![0; usize::try_from(file.size().min(MAX_TEXT)).unwrap_or(0)];
        let read = file.read_exact_at(0, &mut text);
        read.map_err(|source| ChecksumError::Io { path: path(), action: "read", source })?;
        let parsed = Self::decode(&String::from_utf8_lossy(&text));
        parsed.map_err(|(line, what)| ChecksumError::Format { path: path(), line, what })
    }

    /// Decodes text. An error is the line, counted from 1, and what was expected there.
    pub fn decode(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix(TITLE));
        let mut words = title
            .ok_or((1, "a line that starts with `pagehaul-sums 1` was expected"))?
            .split_ascii_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let extent = number().filter(|extent| *extent == EXTENT as u64).ok_or((1, "extents of 1 MiB"))?;
        let size =
            title.and_then(|title| title.rsplit_once(" size ")).and_then(|(_, size)| size.parse().ok());
        let size: u64 = size.ok_or((1, "a size was expected"))?;
        let mut hashes = Vec::new();
        let mut end = None;
        for (at, line) in lines.enumerate() {
            if let Some(value) = line.strip_prefix("end ") {
                end = Some(u64::from_str_radix(value, 16).map_err(|_| (at + 2, "16 hexadecimal digits"))?);
                break;
            }
            hashes.push(u64::from_str_radix(line, 16).map_err(|_| (at + 2, "16 hexadecimal digits"))?);
        }
        let sums = Self { size, extent, hashes };
        let last = sums.hashes.len() + 2;
        if sums.hashes.len() as u64 != size.div_ceil(extent) {
            return Err((
                last,
                "the number of hashes does not fit the size: the checksums are truncated or damaged",
            ));
        }
        if end.is_none() || sums.encode() != text {
            return Err((last, "the hash of all lines differs: the checksums are damaged"));
        }
        Ok(sums)
    }
}

/// Refuses an output whose checksums must not be written.
pub(crate) fn check(output: &Path, overwrite: bool, sources: &[(u64, u64)]) -> Result<(), OutputError> {
    NewFile::check(&Checksums::path_of(output), create_options(overwrite, sources))
}

/// Removes the checksums of a dump that `output` has replaced, with which `verify` would take the new dump for damaged. Another
/// file, such as a link, a source, or text of the user, stays.
pub fn remove_replaced(output: &Path, sources: &[(u64, u64)]) {
    let path = Checksums::path_of(output);
    let Ok(file) =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path)
    else {
        return;
    };
    let is_other = |meta: Metadata| !meta.is_file() || sources.contains(&(meta.dev(), meta.ino()));
    let mut title = [0; TITLE.len()];
    if file.metadata().is_ok_and(is_other) || file.read_exact_at(&mut title, 0).is_err() {
        return;
    }
    if title == TITLE.as_bytes() {
        // A file system that refuses it has let the dump be replaced: nothing else can be done.
        let _ = new_file::remove(&path, &file);
    }
}

fn create_options(overwrite: bool, sources: &[(u64, u64)]) -> CreateOptions<'_> {
    let naming = Naming::WhenComplete;
    CreateOptions { naming, overwrite, special: Special::No, private: true, sources }
}

/// The checksums of a file that is being written, in any order. Extents written at once are hashed at that time; the
/// others are read back at the end.
#[derive(Debug, Default)]
pub struct RunningChecksums {
    hashes: Vec<Option<u64>>,
}

impl RunningChecksums {
    /// Records a write of `bytes` at `offset`, and whether it succeeded.
    pub fn wrote(&mut self, offset: u64, bytes: &[u8], succeeded: bool) {
        let extent = EXTENT as u64;
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let index = (at / extent) as usize;
            let next = (index as u64 + 1) * extent;
            if self.hashes.len() <= index {
                self.hashes.resize(index + 1, None);
            }
            let whole = succeeded && at.is_multiple_of(extent) && next <= end;
            self.hashes[index] =
                whole.then(|| hash(&bytes[(at - offset) as usize..(next - offset) as usize]));
            at = next.min(end);
        }
    }

    /// Records that `length` bytes from `offset` changed.
    pub fn changed(&mut self, offset: u64, length: u64) {
        let extent = EXTENT as u64;
        let end = offset.saturating_add(length).div_ceil(extent);
        for hash in self.hashes.iter_mut().take(end as usize).skip((offset / extent) as usize) {
            *hash = None;
        }
    }

    /// Returns the checksums of `file`, which is the file that was written.
    pub fn finish(mut self, file: &dyn ReadAt) -> io::Result<Checksums> {
        let size = file.size();
        self.hashes.resize(size.div_ceil(EXTENT as u64) as usize, None);
        let mut buffer = vec![0; EXTENT];
        let mut hashes = Vec::with_capacity(self.hashes.len());
        for (index, known) in self.hashes.into_iter().enumerate() {
            let start = index as u64 * EXTENT as u64;
            hashes.push(match known {
                Some(hash) if start + EXTENT as u64 <= size => hash,
                _ => {
                    let part = &mut buffer[..(size - start).min(EXTENT as u64) as usize];
                    file.read_exact_at(start, part)?;
                    hash(part)
                }
            });
        }
        Ok(Checksums { size, extent: EXTENT as u64, hashes })
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::file::PlainFile;

    use super::*;

    fn sums(hashes: usize) -> Checksums {
        let size = hashes as u64 * EXTENT as u64 - 5;
        Checksums {
            size,
            extent: EXTENT as u64,
            hashes: (0..hashes as u64).map(|at| at * 0x1234_5678_9abc).collect(),
        }
    }

    #[test]
    fn text_decodes_to_what_was_encoded() {
        let sums = sums(7);
        assert_eq!(Checksums::decode(&sums.encode()), Ok(sums));
        let empty = Checksums { size: 0, extent: EXTENT as u64, hashes: vec![] };
        assert_eq!(Checksums::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn damaged_checksums_are_refused() {
        let text = sums(3).encode();
        assert!(Checksums::decode("").is_err());
        for cut in 0..text.len() - 1 {
            assert!(Checksums::decode(&text[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Checksums::decode(&String::from_utf8_lossy(&bytes)).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn running_checksums_equal_those_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3 * EXTENT + 777).map(|at| (at ^ at >> 9) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let plain = PlainFile::open(file.path()).unwrap();
        let expected = Checksums::of(&plain).unwrap();
        let mut growing = RunningChecksums::default();
        // The second extent whole, the first and third in pieces, one of them twice.
        growing.wrote(EXTENT as u64, &bytes[EXTENT..2 * EXTENT + 10], true);
        growing.wrote(0, &[9; EXTENT], false);
        growing.wrote(0, &bytes[..EXTENT], true);
        growing.wrote(50, &bytes[50..60], true);
        growing.wrote(2 * EXTENT as u64, &[9; EXTENT], false);
        growing.wrote(2 * EXTENT as u64, &[9; EXTENT], true);
        growing.changed(3 * EXTENT as u64 - 1, u64::MAX);
        growing.wrote(2 * EXTENT as u64 + 10, &bytes[2 * EXTENT + 10..], true);
        assert_eq!(growing.finish(&plain).unwrap(), expected);
    }
}
