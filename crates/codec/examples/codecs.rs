//! Speed and ratio of every method over the pages of files, one thread, medians of CPU time:
//!
//! ```sh
//! cargo run --release -p pagehaul-codec --example codecs -- [-m METHOD,…] [-r ROUNDS] FILE…
//! ```
//!
//! A file is cut into pages of 4 KiB from its start; pages of zeros are left out, as a dump leaves them out. What does
//! not shrink counts as stored and is not decompressed.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use pagehaul_codec::{Compressor, Decompressor, Method, is_zero};
use rustix::time::{ClockId, clock_gettime};

const PAGE: usize = 4096;
const METHODS: &str = "zlib:1,zlib:2,zlib:3,zlib:4,zlib:5,zlib:6,zlib:9,lzo,snappy,zstd:-5,zstd:-3,zstd:-2,zstd:-1,zstd:1,zstd:2,zstd:3";

fn main() -> Result<(), Box<dyn Error>> {
    let mut methods = METHODS.to_owned();
    let mut rounds = 5;
    let mut pages = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-m" => methods = arguments.next().ok_or("-m takes methods")?,
            "-r" => rounds = arguments.next().ok_or("-r takes a number")?.parse::<usize>()?.max(1),
            path => pages.extend_from_slice(std::fs::read(path)?.as_chunks::<PAGE>().0),
        }
    }
    let all = pages.len();
    // Pages with anything in them are mostly told by their first block; pages of zeros are read whole.
    let zeros = vec![0; 4 << 20];
    let zero_test = time(|| {
        for _ in 0..100 {
            for page in zeros.as_chunks::<PAGE>().0 {
                black_box(is_zero(black_box(page)));
            }
        }
    });
    println!("zero test on zeros: {:.1} GB/s", speed(100 * zeros.len(), zero_test) / 1e3);
    pages.retain(|page| !is_zero(page));
    println!("{} pages, {} of them of zeros and left out", all, all - pages.len());
    println!(
        "{:<10}{:>12}{:>14}{:>9}{:>10}{:>8}",
        "method", "comp MB/s", "decomp MB/s", "ratio", "bytes/pg", "raw %"
    );

    let methods = methods.split(',').map(str::parse).collect::<Result<Vec<Method>, _>>()?;
    let mut results = Vec::new();
    for method in methods {
        results.push((method, Compressor::new(method)?, Run::default()));
    }
    // Rounds on the outside: what else the machine does then falls on all methods alike.
    for _ in 0..rounds {
        for (_, compressor, run) in &mut results {
            run.round(compressor, &pages)?;
        }
    }
    for (method, _, run) in &mut results {
        let total = pages.len() * PAGE;
        println!(
            "{:<10}{:>12.0}{:>14.0}{:>9.4}{:>10.1}{:>8.2}",
            method.to_string(),
            speed(total, median(&mut run.compress)),
            speed(total - run.raw * PAGE, median(&mut run.decompress)),
            total as f64 / run.stored as f64,
            run.stored as f64 / pages.len() as f64,
            100.0 * run.raw as f64 / pages.len() as f64,
        );
    }
    Ok(())
}

#[derive(Default)]
struct Run {
    compress: Vec<Duration>,
    decompress: Vec<Duration>,
    /// Bytes that a dump would hold.
    stored: usize,
    /// Pages that did not shrink.
    raw: usize,
}

impl Run {
    fn round(&mut self, compressor: &mut Compressor, pages: &[[u8; PAGE]]) -> Result<(), Box<dyn Error>> {
        let codec = compressor.method().codec();
        let mut packed = vec![0; pages.len() * PAGE];
        let mut sizes = vec![None; pages.len()];
        self.compress.push(time(|| {
            // As a writer does: back to back.
            let mut at = 0;
            for (page, size) in pages.iter().zip(&mut sizes) {
                *size = compressor.compress(page, &mut packed[at..at + PAGE]);
                at += size.unwrap_or(0);
            }
        }));
        self.raw = sizes.iter().filter(|size| size.is_none()).count();
        self.stored = sizes.iter().map(|size| size.unwrap_or(PAGE)).sum();

        let mut decompressor = Decompressor::new();
        let mut back = [0; PAGE];
        let mut failed = None;
        self.decompress.push(time(|| {
            let mut at = 0;
            for size in sizes.iter().flatten() {
                if let Err(error) = decompressor.decompress(codec, &packed[at..at + size], &mut back) {
                    failed = Some(error);
                }
                black_box(&back);
                at += size;
            }
        }));
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    work();
    now() - start
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// MB/s.
fn speed(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}
