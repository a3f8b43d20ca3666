//! Measures how fast memory can be accessed, by the size of the window: mapped only, mapped and touched, read.
//!
//! On /proc/vmcore a mapping costs its page table entries (8 bytes per 4 KiB) and a TLB flush when it is unmapped, a read
//! one mapping and one copy for every page.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_physmem::{Access, MapPolicy, MappedFile};
use serde::Serialize;

use crate::error::BenchError;

/// The windows swept: 4 KiB to 64 MiB.
pub const WINDOWS: [u64; 15] = {
    let mut windows = [0; 15];
    let mut step = 0;
    while step < windows.len() {
        windows[step] = 4096 << step;
        step += 1;
    }
    windows
};

/// Larger buffers to read into do not fit a capture kernel.
const LARGEST_READ: u64 = 16 << 20;
/// Least speed of the advised window, relative to the fastest.
const NEAR: f64 = 0.95;
const PAGE: usize = 4096;

/// One size of window. Rates are bytes per second; none if it was not measured or the system refused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowRate {
    /// Bytes of the window.
    pub window: u64,
    /// Bytes of page table entries it takes.
    pub page_table: u64,
    /// Mapped and unmapped.
    pub mapped: Option<f64>,
    /// Mapped, one word of every page read.
    pub touched: Option<f64>,
    /// Mapped, every word read.
    pub summed: Option<f64>,
    /// Read into a buffer of this size.
    pub read: Option<f64>,
}

/// A sweep over one source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// The file.
    pub source: String,
    /// Bytes it has.
    pub bytes: u64,
    /// A row per window.
    pub rows: Vec<WindowRate>,
    /// The smallest window within 5 % of the fastest with every word read: larger ones only cost page tables.
    pub advised: Option<u64>,
}

/// Sweeps all of [`WINDOWS`] over the file at `path`, about `time` for each figure. Reads the file from its start,
/// repeatedly if it is short. `progress` is called before each window.
pub fn sweep(path: &Path, time: Duration, progress: &mut dyn FnMut(u64)) -> Result<Sweep, BenchError> {
    let bytes = PlainFile::open(path)?.size();
    if bytes < PAGE as u64 {
        return Err(BenchError::TooShort { path: path.to_owned(), size: bytes, least: PAGE as u64 });
    }
    let mut rows = Vec::new();
    for window in WINDOWS {
        progress(window);
        let mapped = |look: fn(&[u8]) -> u64| through_mapping(path, window, time, look);
        rows.push(WindowRate {
            window,
            page_table: window / PAGE as u64 * 8,
            mapped: mapped(|_| 0)?,
            touched: mapped(one_word_a_page)?,
            summed: mapped(every_word)?,
            read: if window <= LARGEST_READ { through_buffer(path, window, time)? } else { None },
        });
    }
    let advised = advise(&rows);
    Ok(Sweep { source: path.display().to_string(), bytes, rows, advised })
}

fn advise(rows: &[WindowRate]) -> Option<u64> {
    let best = rows.iter().filter_map(|row| row.summed).fold(0.0, f64::max);
    rows.iter()
        .find(|row| row.summed.is_some_and(|rate| rate > 0.0 && rate >= best * NEAR))
        .map(|row| row.window)
}

fn one_word_a_page(bytes: &[u8]) -> u64 {
    bytes
        .chunks(PAGE)
        .filter_map(|page| page.first_chunk::<8>())
        .fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word))
}

pub(crate) fn every_word(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word))
}

/// Bytes per second; none if the file cannot be mapped.
fn through_mapping(
    path: &Path,
    window: u64,
    time: Duration,
    look: fn(&[u8]) -> u64,
) -> Result<Option<f64>, BenchError> {
    let mapped = MappedFile::new(PlainFile::open(path)?, MapPolicy { window, access: Access::Map });
    let mut view = mapped.window();
    let size = mapped.file().size();
    let rate = rate(size, window, time, |offset, len| {
        let bytes = view.bytes(offset, len)?;
        black_box(look(bytes));
        Ok(bytes.len())
    });
    let failed = |source| BenchError::Io { path: path.to_owned(), action: "map", source };
    // The source was read instead of mapped, which says nothing about mapping.
    Ok(Some(rate.map_err(failed)?).filter(|_| mapped.is_mapped()))
}

fn through_buffer(path: &Path, window: u64, time: Duration) -> Result<Option<f64>, BenchError> {
    let file = PlainFile::open(path)?;
    let mut buffer = vec![0; window as usize];
    let rate = rate(file.size(), window, time, |offset, len| file.read_at(offset, &mut buffer[..len]));
    rate.map(Some).map_err(|source| BenchError::Io { path: path.to_owned(), action: "read", source })
}

/// Calls `step` for one window after the other until `time` is over, and returns bytes per second.
fn rate(
    size: u64,
    window: u64,
    time: Duration,
    mut step: impl FnMut(u64, usize) -> std::io::Result<usize>,
) -> std::io::Result<f64> {
    // Reading the clock costs more than a small window.
    let between = (1 << 20) / window + 1;
    let start = Instant::now();
    let (mut offset, mut done, mut steps) = (0, 0u64, 0);
    loop {
        let len = window.min(size - offset) as usize;
        let got = step(offset, len)?;
        done += got as u64;
        offset += window;
        if offset >= size {
            offset = 0;
        }
        steps += 1;
        if steps % between == 0 && start.elapsed() >= time {
            return Ok(done as f64 / start.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_window_of_a_file_is_measured() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        let mut seen = Vec::new();
        let sweep = sweep(file.path(), Duration::from_micros(50), &mut |window| seen.push(window)).unwrap();
        assert_eq!(seen, WINDOWS);
        assert_eq!((seen[0], seen[14]), (4096, 64 << 20));
        assert_eq!(sweep.bytes, 300_000);
        assert!(
            sweep.rows.iter().all(|row| row.mapped.is_some_and(|rate| rate > 0.0) && row.summed.is_some())
        );
        assert_eq!(sweep.rows.iter().filter(|row| row.read.is_none()).count(), 2);
        assert!(sweep.advised.is_some_and(|window| WINDOWS.contains(&window)));
    }

    #[test]
    fn an_empty_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = sweep(file.path(), Duration::ZERO, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("has 0 bytes"), "{error}");
    }

    #[test]
    fn the_smallest_window_near_the_best_is_advised() {
        let row = |window, summed| WindowRate {
            window,
            page_table: 0,
            mapped: None,
            touched: None,
            summed: Some(summed),
            read: None,
        };
        assert_eq!(advise(&[row(4096, 10.0), row(8192, 96.0), row(16384, 100.0)]), Some(8192));
        assert_eq!(advise(&[]), None);
    }
}
