//! Measures how fast a disk takes a dump's bytes.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use pagehaul_output::{AlignedBuffer, DumpFileOptions, Output, OutputFile};
use pagehaul_run::BytesWritten;

use crate::error::BenchError;

/// Bytes per write, as a capture writes.
const CHUNK: usize = 2 << 20;
/// Writes that show how fast a disk is, at least.
const LEAST_WRITES: u32 = 4;

/// A bare write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// Bytes written.
    pub bytes: u64,
    /// Seconds until they were on the disk.
    pub seconds: f64,
    /// Seconds by which the slowest write was slower than the mean of the others.
    pub stalled: f64,
}

impl Written {
    /// Bytes per second. A single write that stalls, as the first one may, does not make a slow disk.
    pub fn rate(self) -> f64 {
        self.bytes as f64 / (self.seconds - self.stalled).max(1e-6)
    }
}

/// Writes `bytes`, or as many as `time` and four writes allow, to a temporary file in `directory`, as a capture writes (O_DIRECT where the file
/// system has it), and waits until they are on the disk.
pub fn write(directory: &Path, bytes: u64, time: Duration) -> Result<Written, BenchError> {
    let scratch = temporary(directory)?;
    let path = scratch.path().join("bytes");
    let options = DumpFileOptions { overwrite: false, checksums: false, sources: &[] };
    let mut file = OutputFile::create(&path, options, BytesWritten::default())?;
    let mut buffer = AlignedBuffer::new(CHUNK);
    // No file system or disk stores this as zeros.
    for (index, byte) in (0u32..).zip(buffer.bytes_mut()) {
        *byte = (index.wrapping_mul(2_654_435_761) >> 24) as u8;
    }
    let failed = |error: pagehaul_output::WriteError| {
        BenchError::Wrong(format!("cannot write to {}: {error}", directory.display()))
    };
    let start = Instant::now();
    let (mut written, mut writes, mut slowest) = (0, 0, Duration::ZERO);
    let mut all = Duration::ZERO;
    while written < bytes && (start.elapsed() < time || (1..LEAST_WRITES).contains(&writes)) {
        let len = (bytes - written).min(CHUNK as u64);
        let before = start.elapsed();
        file.write(written, &buffer.bytes()[..len as usize]).map_err(failed)?;
        let took = start.elapsed() - before;
        (all, slowest) = (all + took, slowest.max(took));
        written += len;
        writes += 1;
    }
    file.sync().map_err(failed)?;
    let seconds = start.elapsed().as_secs_f64();
    let others = (all - slowest) / writes.saturating_sub(1).max(1);
    let stalled = if writes < LEAST_WRITES { 0.0 } else { slowest.saturating_sub(others).as_secs_f64() };
    // The kernel keeps what it frees on per-CPU lists, which a dump has: these bytes would make it larger.
    buffer.bytes_mut().fill(0);
    black_box(buffer.bytes());
    Ok(Written { bytes: written, seconds, stalled })
}

/// A directory in `directory`, which is removed with its files at the end.
pub(crate) fn temporary(directory: &Path) -> Result<tempfile::TempDir, BenchError> {
    tempfile::tempdir_in(directory).map_err(|source| BenchError::Io {
        path: directory.to_owned(),
        action: "make a temporary directory in",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_stalls_is_not_the_speed_of_the_disk() {
        let written = Written { bytes: 100 << 20, seconds: 1.1, stalled: 0.6 };
        assert!((written.rate() - 200.0 * (1 << 20) as f64).abs() < 1.0);
    }

    #[test]
    fn as_many_bytes_are_written_as_asked_for_and_nothing_stays() {
        let directory = tempfile::tempdir().unwrap();
        let written = write(directory.path(), (4 << 20) + 123, Duration::MAX).unwrap();
        assert_eq!(written.bytes, (4 << 20) + 123);
        assert!(written.rate() > 0.0);
        assert_eq!(write(directory.path(), 1 << 40, Duration::ZERO).unwrap().bytes, 0);
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        assert!(write(&directory.path().join("none"), 1, Duration::MAX).is_err());
    }
}
