//! The bare codec: the bytes of a file, read beforehand, compressed in frames of 1 MiB on some threads, and thrown away.
//! What cores in frames are measured against. Usage: frames FILE LEVEL THREADS; prints seconds and bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pagehaul_codec::FrameCompressor;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, level, threads] = arguments.as_slice() else { panic!("frames FILE LEVEL THREADS") };
    let content = std::fs::read(file).unwrap();
    let tiles: Vec<&[u8]> = content.chunks(1 << 20).collect();
    let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads.parse().unwrap() {
            scope.spawn(|| {
                let mut compressor = FrameCompressor::new(level.parse().unwrap()).unwrap();
                let mut out = Vec::new();
                while let Some(tile) = tiles.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compressor.compress(tile, &mut out).unwrap();
                    sum.fetch_add(out.len(), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} {}", begun.elapsed().as_secs_f64(), sum.into_inner());
}
