//! Speed of reading a dump: open, random pages, all pages in order.
//!
//! ```sh
//! cargo run --release -p pagehaul-open --example reading -- DUMP THREADS READS
//! ```

use std::error::Error;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::Instant;

use pagehaul_memory::MapPolicy;
use pagehaul_open::Source;
use pagehaul_open::sweep::sweep;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, reads] = arguments.as_slice() else { return Err("DUMP THREADS READS".into()) };
    let (threads, reads): (u64, u64) = (threads.parse()?, reads.parse()?);
    let start = Instant::now();
    let source = Source::open(Path::new(path), MapPolicy::default())?;
    println!("open {:.6} s", start.elapsed().as_secs_f64());
    let memory = source.memory();
    let end = memory.ranges().end() >> 12;
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut view = memory.view();
                let mut scratch = [0; 4096];
                let mut state = 12345 + thread;
                for _ in 0..reads {
                    // The same sequence as the peer's.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let _ = black_box(view.page((state >> 33) % end, &mut scratch));
                }
            });
        }
    });
    let spent = start.elapsed().as_secs_f64();
    println!("random {:.3} us per read", spent / (reads * threads) as f64 * 1e6);
    let start = Instant::now();
    let mut bytes = 0;
    let none: Option<()> = sweep(memory, 0..end, threads as usize, |batch| {
        bytes += black_box(batch.bytes()).len();
        ControlFlow::Continue(())
    });
    assert!(none.is_none());
    let spent = start.elapsed().as_secs_f64();
    println!("sequential {:.3} s, {:.1} MiB/s", spent, bytes as f64 / spent / 1048576.0);
    Ok(())
}
