//! Reads the log of all requests to a disk by QEMU's `blklogwrites`, in the format of Linux's dm-log-writes
//! (Documentation/admin-guide/device-mapper/log-writes.rst).

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
/// Size of the units that a disk writes atomically, in bytes.
pub(crate) const SECTOR: u64 = 512;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Offset on the disk in bytes.
    offset: u64,
    /// Length in bytes; 0 for a flush.
    length: u64,
    /// Offset of the data in the log.
    at: u64,
    /// Whether all earlier writes are on the disk once this completes.
    pub(crate) flush: bool,
    /// Whether the bytes are discarded instead of written.
    discard: bool,
}

impl Entry {
    pub(crate) fn sectors(&self) -> u64 {
        self.length / SECTOR
    }
}

/// The log of one disk.
pub(crate) struct WriteLog {
    path: PathBuf,
    file: File,
    pub(crate) entries: Vec<Entry>,
}

impl WriteLog {
    pub(crate) fn open(path: &Path) -> Result<WriteLog> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut log = WriteLog { path: path.to_owned(), file, entries: Vec::new() };
        let [magic, version, count, sector] = log.words(0)?;
        ensure!(magic == MAGIC && version == VERSION, "{} is not a dm-log-writes log", path.display());
        let sector = sector & u64::from(u32::MAX);
        ensure!(sector == SECTOR, "{} has sectors of {sector} bytes, not {SECTOR}", path.display());
        let mut at = SECTOR;
        for _ in 0..count {
            let [first, sectors, flags, marked] = log.words(at)?;
            at += SECTOR;
            let bytes = |sectors: u64| {
                let fits = sectors.checked_mul(SECTOR).filter(|bytes| *bytes < 1 << 48);
                fits.with_context(|| format!("{} is damaged at {at}", path.display()))
            };
            let (offset, length) = (bytes(first)?, bytes(sectors)?);
            ensure!(
                flags & (FUA | MARK) == 0 && marked == 0,
                "{}: unsupported FUA write or mark",
                path.display()
            );
            let discard = flags & DISCARD != 0;
            log.entries.push(Entry { offset, length, at, flush: flags & FLUSH != 0, discard });
            at += if discard { 0 } else { length };
        }
        Ok(log)
    }

    fn words(&self, at: u64) -> Result<[u64; 4]> {
        let mut bytes = [0; 32];
        self.file.read_exact_at(&mut bytes, at).with_context(|| self.path.display().to_string())?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut values = [0; 4];
        values.iter_mut().zip(words).for_each(|(value, word)| *value = u64::from_le_bytes(*word));
        Ok(values)
    }

    /// Applies the sectors of one request for which `arrived(index)` is true to `disk`.
    pub(crate) fn apply(
        &self,
        entry: &Entry,
        disk: &File,
        mut arrived: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let fail = || format!("replaying {}", self.path.display());
        let mut piece = vec![0; (256 * SECTOR) as usize];
        let mut sector = 0;
        while sector < entry.sectors() {
            // Most requests arrive completely: write neighbouring sectors together.
            let here = arrived(sector);
            let mut next = sector + 1;
            while next < entry.sectors() && next - sector < 256 && arrived(next) == here {
                next += 1;
            }
            if here {
                let bytes = &mut piece[..((next - sector) * SECTOR) as usize];
                if entry.discard {
                    bytes.fill(0);
                } else {
                    self.file.read_exact_at(bytes, entry.at + sector * SECTOR).with_context(fail)?;
                }
                disk.write_all_at(bytes, entry.offset + sector * SECTOR).with_context(fail)?;
            }
            sector = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(directory: &Path, entries: &[(u64, u64, u64)]) -> PathBuf {
        let words = |words: [u64; 4]| {
            let mut block = words.map(u64::to_le_bytes).concat();
            block.resize(SECTOR as usize, 0);
            block
        };
        let mut bytes = words([MAGIC, VERSION, entries.len() as u64, SECTOR]);
        for (number, &(sector, sectors, flags)) in entries.iter().enumerate() {
            bytes.extend(words([sector, sectors, flags, 0]));
            if flags & DISCARD == 0 {
                bytes.resize(bytes.len() + (sectors * SECTOR) as usize, number as u8 + 1);
            }
        }
        let path = directory.join("log");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn writes_are_replayed_sector_by_sector() {
        let directory = tempfile::tempdir().unwrap();
        let log =
            WriteLog::open(&log(directory.path(), &[(0, 4, 0), (0, 0, FLUSH), (1, 2, 0), (3, 1, DISCARD)]))
                .unwrap();
        assert_eq!(
            log.entries.iter().map(|entry| entry.flush).collect::<Vec<_>>(),
            [false, true, false, false]
        );
        let path = directory.path().join("disk");
        let disk = File::create(&path).unwrap();
        for (number, entry) in log.entries.iter().enumerate() {
            log.apply(entry, &disk, |sector| number != 2 || sector == 1).unwrap();
        }
        let disk = std::fs::read(&path).unwrap();
        assert_eq!(disk.chunks(SECTOR as usize).map(|sector| sector[0]).collect::<Vec<_>>(), [1, 1, 3, 0]);
    }

    #[test]
    fn foreign_and_truncated_logs_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = log(directory.path(), &[(u64::MAX, 4, 0)]);
        assert!(WriteLog::open(&path).is_err());
        std::fs::write(&path, vec![0; 4096]).unwrap();
        assert!(WriteLog::open(&path).is_err());
        std::fs::write(&path, b"short").unwrap();
        assert!(WriteLog::open(&path).is_err());
    }
}
