//! Measures speed and size of every method over the pages of files, and of the C libraries that other dumpers
//! use: one thread, medians of CPU time.
//!
//! ```sh
//! cargo run --release -p pagehaul-codec --example codecs -- [-m METHOD,…] [-r ROUNDS] FILE…
//! ```
//!
//! Each file is measured separately, in pages of 4 KiB without zero pages. A page that does not shrink counts
//! as stored, and is not decompressed. A file should be larger than the processor's caches. `gain` is
//! pagehaul's speed over the C library's, `size` its bytes over the library's; the libraries run at level 1,
//! lzo as lzo1x_1_15.

mod peer;

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use pagehaul_codec::{Codec, Compressor, Decompressor, Method, is_zero};
use rustix::time::{ClockId, clock_gettime};

use peer::Peer;

const PAGE: usize = 4096;
const METHODS: &str = "zlib:1,zlib:2,zlib:3,zlib:6,lzo,snappy,zstd:-5,zstd:-3,zstd:-1,zstd:1,zstd:3";

fn main() -> Result<(), Box<dyn Error>> {
    let mut methods = METHODS.to_owned();
    let mut rounds = 5;
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-m" => methods = arguments.next().ok_or("-m takes methods")?,
            "-r" => rounds = arguments.next().ok_or("-r takes a number")?.parse::<usize>()?.max(1),
            _ => files.push(argument),
        }
    }
    let methods = methods.split(',').map(str::parse).collect::<Result<Vec<Method>, _>>()?;
    zero_test();
    for file in files {
        let mut pages = std::fs::read(&file)?.as_chunks::<PAGE>().0.to_vec();
        let all = pages.len();
        pages.retain(|page| !is_zero(page));
        println!("\n{file}: {all} pages, {} of them zero pages, skipped", all - pages.len());
        measure(&pages, &methods, rounds)?;
    }
    Ok(())
}

/// Measures zero-page detection on zero pages, which are read whole.
fn zero_test() {
    let zeros = vec![0; 4 << 20];
    let taken = time(|| {
        for _ in 0..100 {
            for page in zeros.as_chunks::<PAGE>().0 {
                black_box(is_zero(black_box(page)));
            }
        }
    });
    println!("zero test on zeros: {:.1} GB/s", speed(100 * zeros.len(), taken) / 1e3);
}

fn measure(pages: &[[u8; PAGE]], methods: &[Method], rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut peers = Vec::new();
    for codec in Codec::ALL {
        if methods.iter().any(|method| method.codec() == codec) {
            peers.extend(Peer::load(codec).map(|peer| (codec, peer, Run::default())));
        }
    }
    let mut results = Vec::new();
    for &method in methods {
        results.push((method, Compressor::new(method)?, Run::default()));
    }
    // Rounds in the outer loop spread the machine's other work over all methods.
    for _ in 0..rounds {
        for (_, peer, run) in &mut peers {
            run.peer(peer, pages);
        }
        for (_, compressor, run) in &mut results {
            run.round(compressor, pages)?;
        }
    }
    println!(
        "{:<10}{:>12}{:>14}{:>9}{:>10}{:>8}{:>8}{:>9}",
        "method", "comp MB/s", "decomp MB/s", "ratio", "bytes/pg", "raw %", "gain", "size"
    );
    let total = pages.len() * PAGE;
    for (codec, _, run) in &mut peers {
        let time = median(&mut run.compress);
        println!(
            "C {:<8}{:>12.0}{:>14}{:>9.4}{:>10.1}",
            codec.name(),
            speed(total, time),
            "",
            total as f64 / run.stored as f64,
            run.stored as f64 / pages.len() as f64,
        );
    }
    for (method, _, run) in &mut results {
        let taken = median(&mut run.compress);
        print!(
            "{:<10}{:>12.0}{:>14.0}{:>9.4}{:>10.1}{:>8.2}",
            method.to_string(),
            speed(total, taken),
            speed(total - run.raw * PAGE, median(&mut run.decompress)),
            total as f64 / run.stored as f64,
            run.stored as f64 / pages.len() as f64,
            100.0 * run.raw as f64 / pages.len() as f64,
        );
        if let Some((_, _, peer)) = peers.iter_mut().find(|(codec, _, _)| *codec == method.codec()) {
            let gain = median(&mut peer.compress).as_secs_f64() / taken.as_secs_f64();
            print!("{:>7.2}x{:>9.4}", gain, run.stored as f64 / peer.stored as f64);
        }
        println!();
    }
    Ok(())
}

#[derive(Default)]
struct Run {
    compress: Vec<Duration>,
    decompress: Vec<Duration>,
    /// Size of the pages in a dump, in bytes.
    stored: usize,
    /// Pages that did not shrink.
    raw: usize,
}

impl Run {
    fn peer(&mut self, peer: &mut Peer, pages: &[[u8; PAGE]]) {
        let mut packed = vec![0; pages.len() * PAGE + Peer::ROOM];
        let mut stored = 0;
        self.compress.push(time(|| {
            let mut at = 0;
            for page in pages {
                let size = peer.compress(page, &mut packed[at..]);
                at += size.unwrap_or(0);
                stored += size.unwrap_or(PAGE);
            }
        }));
        self.stored = stored;
    }

    fn round(&mut self, compressor: &mut Compressor, pages: &[[u8; PAGE]]) -> Result<(), Box<dyn Error>> {
        let codec = compressor.method().codec();
        let mut packed = vec![0; pages.len() * PAGE];
        let mut sizes = vec![None; pages.len()];
        self.compress.push(time(|| {
            // Back to back, as in a dump.
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
