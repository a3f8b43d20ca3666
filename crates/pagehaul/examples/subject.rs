//! A process for tests to save: memory with known contents, and threads that write and check what they wrote.
//! Usage: subject MIB THREADS [churn|lossy|pending|registers|seccomp|segment|slots|spawn|sparse|vectors|direct DIRECTORY|
//!        vfork FIFO|file PATH|timer PATH|wait PATH]
//!
//! It prints "ready PID ADDRESS BYTES COUNTERS" and answers each line of input with "ok ROUNDS" if all its memory is as
//! it should be, or "broken". It ends with its input. With `file` it writes these answers to a file, over and over:
//! pipes to others cannot be saved. With `wait` the file gets the line that it would print, and nothing more. With
//! `timer` it has a periodic timer expire, makes the file, waits for another, PATH.go, and counts the expirations in
//! the first. With `vfork` a thread waits uninterruptibly until somebody writes to a FIFO. With `sparse` it maps a
//! memfd of 1 TiB in which 100 pages exist, shared, and again private with one page written to. With `segment` it has
//! System V shared memory. With `churn` threads change other memory in every way; with `slots` they move pieces of it,
//! and end the process if they cannot. With `lossy` it has what CRIU does not restore. With `direct` it waits for a
//! file `announced` in a directory, opens another for direct I/O, and makes a file `done`. With `pending` it has
//! signals that it blocks. With `registers` or `vectors`, on arm64, its first thread checks its registers, and ends the
//! process if one changes.
//!
//! Of each 10 MiB, 4 are random, 4 text and 2 zeros; page *n* follows from *n*. Each thread counts twice, at both ends
//! of the counters' memory, so that a copy of one moment has counts that differ by 1 at most.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "subject/churn.rs"]
mod churn;
#[path = "subject/lossy.rs"]
mod lossy;
#[cfg(target_arch = "aarch64")]
#[path = "subject/registers.rs"]
mod registers;
#[path = "subject/slots.rs"]
mod slots;

use pagehaul_test_support::content::{PAGE, fill};

fn is_whole(memory: &[u8]) -> bool {
    let mut expected = vec![0; PAGE];
    memory.chunks(PAGE).enumerate().all(|(index, page)| {
        fill(index, &mut expected);
        page == expected
    })
}

#[inline(never)]
fn worker_loop(low: &AtomicU64, high: &AtomicU64) {
    let mut local = 0u64;
    loop {
        low.fetch_add(1, Ordering::SeqCst);
        local = black_box(local.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        high.fetch_add(1, Ordering::SeqCst);
        if local.is_multiple_of(64) {
            std::thread::yield_now();
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|word| word.parse::<usize>().ok()).unwrap_or(1);
    let (mib, threads) = (number(), number());
    let mut memory = vec![0; mib << 20];
    for (index, page) in memory.chunks_mut(PAGE).enumerate() {
        fill(index, page);
    }
    let mode = arguments.next();
    if mode.as_deref() == Some("pending") {
        block_and_send();
    }
    // Pages of their own: one at each end, untouched ones between.
    let counters: &'static [AtomicU64] = Box::leak((0..threads * 2).map(|_| AtomicU64::new(0)).collect());
    let spacer = vec![0u8; 64 << 20];
    for index in 0..threads {
        let (low, high) = (&counters[index], &counters[2 * threads - 1 - index]);
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(|| worker_loop(low, high)).unwrap();
    }
    // Threads allocate memory when they start.
    while counters.iter().any(|counter| counter.load(Ordering::SeqCst) == 0) {
        std::thread::yield_now();
    }
    let (base, bytes) = (memory.as_ptr().addr(), memory.len());
    let ready = format!("ready {} {base:#x} {bytes:#x} {:#x}", std::process::id(), counters.as_ptr().addr());
    let rounds = move || counters.iter().map(|counter| counter.load(Ordering::SeqCst)).sum::<u64>();
    match mode.as_deref() {
        Some("file") => {
            let path = arguments.next().unwrap();
            loop {
                let state =
                    if is_whole(black_box(&memory)) { format!("ok {}", rounds()) } else { "broken".into() };
                std::fs::write(format!("{path}.new"), state).unwrap();
                std::fs::rename(format!("{path}.new"), &path).unwrap();
            }
        }
        Some("churn") => churn::start(),
        Some("lossy") => lossy::take_all(),
        Some("slots") => slots::start(),
        Some("direct") => drop({
            let directory = arguments.next().unwrap();
            std::thread::spawn(move || open_for_direct_io(&PathBuf::from(directory)))
        }),
        Some("sparse") => map_sparse(),
        Some("segment") => map_segment(),
        Some("seccomp") => refuse_everything_new(),
        Some("vfork") => drop({
            let fifo = arguments.next().unwrap();
            std::thread::spawn(move || wait_for_exec(&fifo))
        }),
        Some("wait") => {
            std::fs::write(arguments.next().unwrap(), ready + "\n").unwrap();
            loop {
                std::thread::park();
            }
        }
        Some("timer") => count_expirations(&PathBuf::from(arguments.next().unwrap())),
        Some("spawn") => drop(std::thread::spawn(|| {
            loop {
                let short = std::thread::Builder::new().stack_size(64 << 10).spawn(|| black_box(1));
                // One at the limit of threads has to wait for the others to end.
                let _ = short.map(|short| {
                    if black_box(false) {
                        drop(short.join())
                    }
                });
                std::thread::yield_now();
            }
        })),
        _ => {}
    }
    say(&ready);
    let answer = move || -> ! {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
            say(&if is_whole(black_box(&memory)) { format!("ok {}", rounds()) } else { "broken".into() });
        }
        black_box(&spacer);
        std::process::exit(0)
    };
    #[cfg(target_arch = "aarch64")]
    if let Some(keep) = registers::keeper(mode.as_deref()) {
        std::thread::spawn(answer);
        keep();
    }
    answer()
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

/// Begins direct I/O once told to, and keeps the file open.
fn open_for_direct_io(directory: &Path) {
    while !directory.join("announced").exists() {
        std::thread::yield_now();
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    std::mem::forget(options.open(directory.join("direct")).unwrap());
    File::create(directory.join("done")).unwrap();
}

/// Makes a process by vfork that cannot get to its exec before the FIFO has a writer. Until then its parent waits in the
/// kernel, and nothing but death interrupts it.
fn wait_for_exec(fifo: &str) {
    let (fifo, program) = (CString::new(fifo).unwrap(), c"/bin/true");
    let arguments = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let mut actions = MaybeUninit::uninit();
    let mut pid = 0;
    // SAFETY: everything is initialised where it is to be, and alive for the calls; strings and lists end as they should.
    unsafe {
        assert_eq!(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()), 0);
        let actions = actions.as_mut_ptr();
        assert_eq!(libc::posix_spawn_file_actions_addopen(actions, 9, fifo.as_ptr(), libc::O_RDONLY, 0), 0);
        let (arguments, nothing) = (arguments.as_ptr(), [std::ptr::null_mut()]);
        let spawned = libc::posix_spawn(
            &mut pid,
            program.as_ptr(),
            actions,
            std::ptr::null(),
            arguments,
            nothing.as_ptr(),
        );
        assert_eq!(spawned, 0);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Blocks two signals, one of them queued twice, and sends them to this process.
fn block_and_send() {
    let real_time = libc::SIGRTMIN() + 3;
    // SAFETY: the set is initialised before it is used, and alive for the calls.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1);
        libc::sigaddset(set.as_mut_ptr(), real_time);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()), 0);
        for signal in [libc::SIGUSR1, real_time, real_time] {
            libc::kill(libc::getpid(), signal);
        }
    }
}

/// Counts a timer's expirations in a file. The first is not read before the file's companion exists.
fn count_expirations(path: &Path) -> ! {
    const INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let every = libc::itimerspec { it_interval: INTERVAL, it_value: INTERVAL };
    // SAFETY: a new descriptor, and structs that are alive for the calls.
    let timer = unsafe {
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        assert_eq!(libc::timerfd_settime(timer, 0, &every, std::ptr::null_mut()), 0);
        assert_eq!(libc::poll(&mut libc::pollfd { fd: timer, events: libc::POLLIN, revents: 0 }, 1, -1), 1);
        timer
    };
    std::fs::write(path, "0").unwrap();
    while !path.with_extension("go").exists() {
        std::thread::yield_now();
    }
    let mut all = 0;
    loop {
        let mut expirations = 0u64;
        // SAFETY: the kernel writes 8 bytes.
        if unsafe { libc::read(timer, (&raw mut expirations).cast(), 8) } == 8 {
            all += expirations;
            std::fs::write(path.with_extension("new"), all.to_string()).unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        }
    }
}

/// Maps 1 TiB of which hardly anything exists.
fn map_sparse() {
    const BYTES: usize = 1 << 40;
    // SAFETY: new mappings of a new file; what is written to is within them.
    unsafe {
        let file = libc::memfd_create(c"sparse".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, BYTES as i64), 0);
        for (flags, pages) in [(libc::MAP_SHARED, 100), (libc::MAP_PRIVATE, 1)] {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = flags | libc::MAP_NORESERVE;
            let base = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, file, 0);
            assert_ne!(base, libc::MAP_FAILED);
            for page in 0..pages {
                base.cast::<u8>().add((page << 30) + (1 << 20)).write(1);
            }
        }
    }
}

/// Maps System V shared memory, which goes away with the process.
fn map_segment() {
    // SAFETY: a new mapping of a new segment.
    unsafe {
        let segment = libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o600);
        assert!(segment >= 0, "shmget");
        assert_ne!(libc::shmat(segment, std::ptr::null(), 0).addr(), usize::MAX);
        assert_eq!(libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()), 0);
    }
}

/// A seccomp filter under which making a process or thread is death.
fn refuse_everything_new() {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    const OLD: &[libc::c_long] = &[
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
    ];
    let deadly = [&[libc::SYS_clone, libc::SYS_clone3, libc::SYS_wait4], OLD].concat();
    let mut filter = vec![statement(BPF_LD | BPF_W | BPF_ABS, 0)];
    for (index, number) in deadly.iter().enumerate() {
        let jump = (deadly.len() - index) as u8;
        filter.push(sock_filter { jt: jump, ..statement(BPF_JMP | BPF_JEQ | BPF_K, *number as u32) });
    }
    filter.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS));
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain system calls; the program's filter is alive.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &program,
        )
    };
    assert_eq!(result, 0, "seccomp");
}
