//! `pagehaul read`.

use std::io::{self, BufWriter, Write};
use std::ops::{ControlFlow, Range};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use pagehaul_kernel::{AddressSpace, TranslateError};
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageState, ReadError, View};
use pagehaul_present::number::parse_bytes;
use pagehaul_vmcore::Source;
use pagehaul_vmcore::sweep::sweep;

use crate::cli::options::{Dumps, Threads, Verbose};
use crate::usage;

/// Read memory at a physical or virtual address
///
/// Stops at the first unavailable byte and names the reason.
///
/// Exit status: 0, all bytes were read; 1, the dump cannot be read; 2, the command line is wrong; 4, the page was excluded
/// from the dump; 5, it is missing (the dump is truncated, incomplete or lacks a part); 6, it is damaged; 7, there is no
/// memory at the address, or nothing is mapped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul read dump --phys 0x100000 --len 256
  pagehaul read dump --virt 0xffff888000100000 --len 4096 --format raw > text
  pagehaul read part.1 part.2 --phys 0 --len 1G --format raw | sha256sum")]
pub(crate) struct ReadArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// Physical address, decimal or hexadecimal with 0x
    #[arg(long, value_name = "ADDR", value_parser = number, required_unless_present = "virt", conflicts_with = "virt")]
    phys: Option<u64>,
    /// Kernel virtual address (KASLR: as the crashed kernel had it)
    #[arg(long, value_name = "ADDR", value_parser = number)]
    virt: Option<u64>,
    /// Bytes to read: 64, 0x1000, 4K, 1G
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = length)]
    len: u64,
    /// Format of the bytes
    #[arg(long, value_enum, default_value = "hex")]
    format: ReadFormat,
    #[command(flatten)]
    threads: Threads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReadFormat {
    /// Address, 16 bytes and their characters per line
    Hex,
    /// The bytes
    Raw,
}

/// Why reading stopped before its end.
enum Stop {
    Read(ReadError),
    Unmapped(TranslateError),
    Write(io::Error),
}

pub(crate) fn run(arguments: &ReadArguments) -> anyhow::Result<ExitCode> {
    let source = arguments.dumps.open()?;
    let mut out = Printer::new(arguments);
    let stopped = match (arguments.phys, arguments.virt) {
        (Some(paddr), _) => physical(&source, paddr, arguments, &mut out),
        (_, Some(vaddr)) => {
            let memory = source.memory();
            let space = AddressSpace::discover(memory).with_context(|| {
                format!("{}: virtual addresses need the kernel's page tables", source.path().display())
            })?;
            virtual_memory(&source, &space, vaddr, arguments.len, &mut out)
        }
        (None, None) => return Err(usage::wrong("name an address with --phys or --virt")),
    };
    let state = match stopped.and_then(|()| out.finish().map_err(Stop::Write)) {
        Ok(()) => return Ok(ExitCode::SUCCESS),
        Err(Stop::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(Stop::Write(error)) => return Err(error).context("cannot write to standard output"),
        Err(Stop::Read(error)) => {
            tell!("pagehaul: {}: {error}", source.path().display());
            error.state()
        }
        Err(Stop::Unmapped(error)) => {
            tell!("pagehaul: {}: {error}", source.path().display());
            error.state()
        }
    };
    if state == PageState::Excluded && source.is_incomplete() {
        tell!("pagehaul: the dump is incomplete: the page may have been left out at a limit, not excluded");
    }
    Ok(ExitCode::from(match state {
        PageState::Present => 0,
        PageState::Excluded => 4,
        PageState::Missing => 5,
        PageState::Damaged => 6,
        PageState::Absent => 7,
    }))
}

/// Pages are decompressed on every CPU ahead of the one that prints.
fn physical(source: &Source, start: u64, arguments: &ReadArguments, out: &mut Printer) -> Result<(), Stop> {
    let memory = source.memory();
    let absent = |paddr| Stop::Read(ReadError::NotPresent { paddr });
    let end = start.checked_add(arguments.len).ok_or_else(|| absent(start))?;
    let mut at = start;
    let pfns = start >> PAGE_SHIFT..end.div_ceil(PAGE_SIZE as u64);
    let threads = arguments.threads.count();
    let mut view = memory.view();
    let stop = sweep(memory, pfns, threads, |batch| {
        for (pfn, state, bytes) in batch.pages() {
            let page = pfn << PAGE_SHIFT;
            if page > at {
                return ControlFlow::Break(absent(at));
            }
            let next = (page + PAGE_SIZE as u64).min(end);
            let done =
                if state == PageState::Present && !memory.ranges().divides(page..page + PAGE_SIZE as u64) {
                    out.put(at, &bytes[(at - page) as usize..(next - page) as usize]).map_err(Stop::Write)
                } else {
                    pieces(view.as_mut(), at..next, out)
                };
            if let Err(stop) = done {
                return ControlFlow::Break(stop);
            }
            at = next;
        }
        ControlFlow::Continue(())
    });
    match stop {
        Some(stop) => Err(stop),
        None if at < end => Err(absent(at)),
        None => Ok(()),
    }
}

/// Prints the bytes of a page that has only some of them, up to the first that it lacks.
fn pieces(view: &mut dyn View, bytes: Range<u64>, out: &mut Printer) -> Result<(), Stop> {
    let mut at = bytes.start;
    while at < bytes.end {
        let piece = view.window(at, (bytes.end - at) as usize).map_err(Stop::Read)?.to_vec();
        if view.take_fault() {
            let reason = "the file failed while it was read".into();
            return Err(Stop::Read(ReadError::Damaged { paddr: at, reason }));
        }
        out.put(at, &piece).map_err(Stop::Write)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn virtual_memory(
    source: &Source,
    space: &AddressSpace,
    start: u64,
    len: u64,
    out: &mut Printer,
) -> Result<(), Stop> {
    let mut view = source.memory().view();
    let mut done = 0;
    let mut buffer = vec![0; PAGE_SIZE];
    while done < len {
        let at = start.wrapping_add(done);
        // To the end of the page: what follows may be mapped elsewhere.
        let count = (PAGE_SIZE as u64 - at % PAGE_SIZE as u64).min(len - done) as usize;
        let part = &mut buffer[..count];
        space.translator().read(view.as_mut(), at, part).map_err(Stop::Unmapped)?;
        out.put(at, part).map_err(Stop::Write)?;
        done += count as u64;
    }
    Ok(())
}

/// Prints bytes as they come.
struct Printer {
    out: BufWriter<io::Stdout>,
    raw: bool,
    /// The line being made, and the address of its first byte.
    line: Vec<u8>,
    start: u64,
}

impl Printer {
    fn new(arguments: &ReadArguments) -> Self {
        let raw = arguments.format == ReadFormat::Raw;
        Self { out: BufWriter::with_capacity(1 << 20, io::stdout()), raw, line: Vec::new(), start: 0 }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.raw {
            return self.out.write_all(bytes);
        }
        for (offset, byte) in bytes.iter().enumerate() {
            if self.line.is_empty() {
                self.start = at + offset as u64;
            }
            self.line.push(*byte);
            if self.line.len() == 16 {
                self.print_line()?;
            }
        }
        Ok(())
    }

    fn print_line(&mut self) -> io::Result<()> {
        let hex: Vec<String> = self.line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = self
            .line
            .iter()
            .map(|byte| match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '.',
            })
            .collect();
        let halves = hex.chunks(8).map(|half| half.join(" ")).collect::<Vec<_>>().join("  ");
        writeln!(self.out, "{:016x}  {halves:48}  |{text}|", self.start)?;
        self.line.clear();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.print_line()?;
        }
        self.out.flush()
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        // What came before an error is still of use; that it cannot be printed has been said.
        let _ = self.finish();
    }
}

/// A length in hexadecimal, or a size with an optional unit.
fn length(text: &str) -> Result<u64, String> {
    if text.starts_with("0x") || text.starts_with("0X") { number(text) } else { parse_bytes(text) }
}

/// A number in decimal, or in hexadecimal after 0x.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a number such as 4096 or 0x1000".into())
}
