//! A process whose pauses can be seen from inside: memory of known kinds, a thread that writes to random pages at a steady rate,
//! and a thread that reads the clock. Usage: clocked MIB RATE PROCESSES THREADS FILE
//!
//! Each of PROCESSES has MIB of memory (of 10 pages, 4 random, 4 of a repeating number, 2 zeros) and THREADS more threads that
//! sleep. Together they write to RATE MB of pages each second. FILE gets one word of 8 bytes for each process: the longest time
//! in nanoseconds between two readings of the clock, which sleep 100 µs, since the word was set to zero. The threads have
//! real-time priority where that is allowed, so that only a stop of the process counts. It ends with its parent.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// A generator of numbers (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mib, rate, processes, threads, file] = arguments.as_slice() else {
        panic!("clocked MIB RATE PROCESSES THREADS FILE")
    };
    let [mib, rate, processes, threads]: [usize; 4] =
        [mib, rate, processes, threads].map(|word| word.parse().unwrap());
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(file).unwrap();
    file.set_len((processes * 8) as u64).unwrap();
    // SAFETY: a new shared mapping of the file, as long as the file is; never unmapped.
    let words = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), processes * 8, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(words, libc::MAP_FAILED);
    drop(file);
    for number in 1..processes {
        // SAFETY: there is one thread yet.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: one system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            return run(mib, rate / processes, threads, word(words, number));
        }
    }
    run(mib, rate / processes, threads, word(words, 0))
}

fn word(words: *mut libc::c_void, number: usize) -> &'static AtomicU64 {
    // SAFETY: within the mapping, which is aligned to pages and stays.
    unsafe { &*words.cast::<AtomicU64>().add(number) }
}

fn run(mib: usize, rate: usize, threads: usize, longest: &'static AtomicU64) {
    let mut memory = vec![0u64; (mib << 20) / 8];
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    for (index, page) in memory.chunks_mut(PAGE / 8).enumerate() {
        match index % 10 {
            0..4 => page.iter_mut().for_each(|word| *word = numbers.next()),
            4..8 => page.fill(index as u64),
            // Written to, so that it exists.
            _ => page.fill(0),
        }
    }
    // `struct sched_param` of the kernel. musl has another, and no function for the call.
    let priority = 10i32;
    // SAFETY: the number is what the call reads; a refusal leaves the ordinary priority.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) };
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1000));
            }
        });
    }
    thread::spawn(move || {
        let mut last = Instant::now();
        // Ready.
        longest.store(1, Ordering::Relaxed);
        loop {
            thread::sleep(Duration::from_micros(100));
            let now = Instant::now();
            longest.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
            last = now;
        }
    });
    // What is written to is counted from the clock, so that a late turn writes more.
    let (begun, pages) = (Instant::now(), memory.len() * 8 / PAGE);
    let mut written = 0;
    loop {
        let due = (begun.elapsed().as_micros() as usize) * rate / PAGE;
        // Of a stop, no more than 10 ms are made up for.
        written = written.max(due.saturating_sub(10_000 * rate / PAGE));
        while written < due {
            let at = numbers.next() as usize % pages * (PAGE / 8);
            memory[at] = memory[at].wrapping_add(1);
            written += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
