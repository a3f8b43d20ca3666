//! A process that crashes: `crasher MIB SIGNAL` has a child fill that much memory and crash, and prints how long
//! it took until the child was gone.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [mib, signal] => crash(mib, signal),
        [child, mib, signal] if child == "child" => {
            fill(mib.parse().expect("MiB"), signal.parse().expect("a signal"))
        }
        _ => panic!("usage: crasher MIB SIGNAL"),
    }
}

/// Prints the child's PID, seconds until it was gone, seconds of one copy of its memory, and its status.
fn crash(mib: &str, signal: &str) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["child", mib, signal]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a child");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("what it says");
    let began = Instant::now();
    drop(child.stdin.take());
    let status = child.wait().expect("its status");
    let gone = began.elapsed().as_secs_f64();
    let (pid, copy, dumped) = (child.id(), line.trim(), u8::from(status.core_dumped()));
    println!("{pid} {gone:.4} {copy} {} {dumped}", status.signal().unwrap_or(0));
}

/// Two fifths random words, two fifths text, one fifth zeros that were written.
fn fill(mib: usize, signal: i32) {
    let mut memory = vec![0u8; mib << 20];
    let mut random = 0x1234_5678_9abc_def1_u64;
    for (index, page) in memory.chunks_mut(PAGE).enumerate() {
        match index % 5 {
            0 | 1 => page.chunks_exact_mut(8).for_each(|word| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                word.copy_from_slice(&random.to_le_bytes());
            }),
            2 | 3 => page.chunks_exact_mut(16).enumerate().for_each(|(line, text)| {
                text.copy_from_slice(format!("line {:>10}\n", index * PAGE + line).as_bytes());
            }),
            _ => page[0] = 0,
        }
    }
    let mut copy = vec![1u8; 64 << 20];
    let began = Instant::now();
    for part in memory.chunks(copy.len()) {
        copy[..part.len()].copy_from_slice(part);
    }
    println!("{:.4}", began.elapsed().max(Duration::from_micros(1)).as_secs_f64());
    drop(copy);
    let _ = std::io::stdin().read(&mut [0]);
    // SAFETY: a signal to this process.
    unsafe { libc::raise(signal) };
    assert!(memory[0] < u8::MAX);
}
