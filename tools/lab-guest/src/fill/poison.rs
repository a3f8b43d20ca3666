//! Poisons pages, in a separate process, since the kernel may kill a process that has poisoned pages.

use crate::Result;
use crate::pages::{Mapping, page_size};
use crate::tasks::POISONER;
use lab_guest::Class;
use lab_guest::results::{Filled, Range};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

const PAGES: usize = 8;
/// `MADV_HWPOISON` of asm-generic/mman-common.h. Needs CONFIG_MEMORY_FAILURE.
const MADV_HWPOISON: i32 = 100;

/// Starts the process and reads the PFNs of its pages from it.
pub fn fill() -> Result<Filled> {
    let mut child = Command::new("/proc/self/exe")
        .args([POISONER, "lab-poisoned"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("starting the process with poisoned pages: {e}"))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|e| format!("reading from the child: {e}"))?;
    }
    let ranges: std::result::Result<Vec<Range>, String> =
        serde_json::from_str(&line).map_err(|e| format!("the child was killed ({e})"))?;
    let ranges = ranges?;
    Ok(Filled { class: Class::HwPoison, count: ranges.iter().map(|r| r.pages).sum(), ranges })
}

/// Runs that process: poisons every other page of a mapping, prints their PFNs, then waits.
pub fn child(name: Option<&str>) -> ExitCode {
    crate::tasks::set_name(name.unwrap_or_default());
    let line = serde_json::to_string(&poison()).unwrap_or_default();
    let mut out = std::io::stdout();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    crate::tasks::wait()
}

extern "C" fn carry_on(_signal: libc::c_int) {}

fn poison() -> Result<Vec<Range>> {
    // The kernel sends a SIGBUS for each poisoned page; SIG_IGN does not prevent the kill.
    let handler: extern "C" fn(libc::c_int) = carry_on;
    // SAFETY: the handler does nothing, which is safe in any state.
    unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
    let size = page_size();
    let mut mapping = Mapping::anonymous(2 * PAGES * size, 0)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    let filled = mapping.fill(Class::HwPoison)?;
    let mut poisoned = Vec::new();
    for (i, (pfn, sequence)) in filled.pages().enumerate().filter(|(i, _)| i % 2 == 0) {
        // SAFETY: one page of the mapping, which is not accessed again.
        let result = unsafe { libc::madvise(mapping.address(i * size), size, MADV_HWPOISON) };
        crate::system::check(result.into(), "madvise(MADV_HWPOISON)")?;
        poisoned.push(Range { pfn, sequence, pages: 1 });
    }
    Ok(poisoned)
}
