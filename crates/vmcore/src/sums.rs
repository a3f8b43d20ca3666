//! Checksums of a file, extent by extent, kept beside it: what tells that a copy is the file, and where it isn't.
//!
//! The format is text, one line each:
//! ```text
//! pagehaul-sums 1 xxh3-64 extent 1048576 size 29719181
//! 00b1c2…      the hash of the first extent, 16 hexadecimal digits
//! …
//! end 5f3a…    the hash of all lines before
//! ```

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pagehaul_physmem::file::ReadAt;
use twox_hash::XxHash3_64;

/// Bytes that have one hash: 8 MiB of them for a terabyte, and little to look through once one differs.
pub const EXTENT: usize = 1 << 20;
/// First words of the file.
const TITLE: &str = "pagehaul-sums 1 xxh3-64 extent";

/// The hash of an extent: XXH3, 64 bits, seed 0. It finds accidents, not attacks.
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksums of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of each extent but the last.
    pub extent: u64,
    /// Hashes, in order.
    pub hashes: Vec<u64>,
}

/// Why checksums cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SumsError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: line {line}: {what}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What was expected.
        what: &'static str,
    },
}

impl Sums {
    /// Where the checksums of `path` are kept.
    pub fn path_of(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".sums");
        name.into()
    }

    /// Of a whole file, by reading it.
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

    /// As text.
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

    /// Writes them to `path`, readable by their owner only, as the file they are of.
    pub fn write(&self, path: &Path) -> Result<(), SumsError> {
        let fail = |source| SumsError::Io { path: path.to_owned(), action: "write", source };
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(fail)?;
        io::Write::write_all(&mut file, self.encode().as_bytes()).map_err(fail)
    }

    /// Reads the checksums in `path`; none where there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>, SumsError> {
        let text = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SumsError::Io { path: path.to_owned(), action: "read", source }),
        };
        let parsed = Self::decode(&String::from_utf8_lossy(&text));
        let place = |(line, what)| SumsError::Format { path: path.to_owned(), line, what };
        parsed.map(Some).map_err(place)
    }

    /// From text; else the line at fault, from 1 on, and what was expected there.
    pub fn decode(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix(TITLE));
        let mut words = title.ok_or((1, "no checksums of a kind that is known"))?.split_ascii_whitespace();
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
            return Err((last, "there is not one hash for each extent: the checksums are cut or damaged"));
        }
        if end.is_none() || sums.encode() != text {
            return Err((last, "the hash of all lines is another: the checksums are damaged"));
        }
        Ok(sums)
    }
}

/// The checksums of a file while it is written, in whatever order. Extents written in one piece are hashed on the way;
/// the others are read again at the end.
#[derive(Debug, Default)]
pub struct Growing {
    hashes: Vec<Option<u64>>,
}

impl Growing {
    /// Takes note that `bytes` were to be written at `offset`, and whether they were.
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

    /// Takes note that `length` bytes from `offset` on are no longer what was written.
    pub fn changed(&mut self, offset: u64, length: u64) {
        let extent = EXTENT as u64;
        let end = offset.saturating_add(length).div_ceil(extent);
        for hash in self.hashes.iter_mut().take(end as usize).skip((offset / extent) as usize) {
            *hash = None;
        }
    }

    /// The checksums of `file`, which is what was written.
    pub fn finish(mut self, file: &dyn ReadAt) -> io::Result<Sums> {
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
        Ok(Sums { size, extent: EXTENT as u64, hashes })
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::file::PlainFile;

    use super::*;

    fn sums(hashes: usize) -> Sums {
        let size = hashes as u64 * EXTENT as u64 - 5;
        Sums {
            size,
            extent: EXTENT as u64,
            hashes: (0..hashes as u64).map(|at| at * 0x1234_5678_9abc).collect(),
        }
    }

    #[test]
    fn text_is_what_it_was() {
        let sums = sums(7);
        assert_eq!(Sums::decode(&sums.encode()), Ok(sums));
        let empty = Sums { size: 0, extent: EXTENT as u64, hashes: vec![] };
        assert_eq!(Sums::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn damaged_checksums_are_refused() {
        let text = sums(3).encode();
        assert!(Sums::decode("").is_err());
        for cut in 0..text.len() - 1 {
            assert!(Sums::decode(&text[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Sums::decode(&String::from_utf8_lossy(&bytes)).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn checksums_made_on_the_way_are_those_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3 * EXTENT + 777).map(|at| (at ^ at >> 9) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let plain = PlainFile::open(file.path()).unwrap();
        let expected = Sums::of(&plain).unwrap();
        let mut growing = Growing::default();
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
