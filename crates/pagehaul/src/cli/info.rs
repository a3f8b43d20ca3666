//! `pagehaul info`.

mod render;

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_elfcore::notes;
use pagehaul_facts::{CpuRegisters, Crash, CrashId, crash_id, lines_of, registers_of};
use pagehaul_kdump::format::flags;
use pagehaul_kdump::{KdumpFile, SplitSet};
use pagehaul_kernel::{Kernel, KernelLog, PageClass, PageScanner, VmcoreInfo};
use pagehaul_machine::Pfn;
use pagehaul_physmem::{MapPolicy, PhysMemory, bits};
use pagehaul_vmcore::{ImageFormat, Source, SourceKind};
use serde::Serialize;

use crate::cli::completeness;
use crate::cli::options::{Dumps, Json, Verbose};
use crate::exit;
use crate::sandbox::{self, Sandbox};

/// Describe a dump: format, kernel, time, dump level, codecs, completeness; memory map and registers
///
/// Exit status: 0, the dump is complete; 1, it cannot be read; 2, the command line is wrong; 3, it is incomplete, and what is there was
/// printed.
#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// Also count the pages of each class, from the kernel's struct pages
    #[arg(long)]
    classes: bool,
    /// Also list every note, and all registers of each CPU
    #[arg(long)]
    notes: bool,
    #[command(flatten)]
    json: Json,
}

pub(crate) fn run(arguments: &InfoArguments) -> anyhow::Result<ExitCode> {
    let dumps = &arguments.dumps.dumps;
    let bases = super::hold(dumps, &arguments.dumps.identity)?;
    sandbox::enter(Sandbox::reading(dumps.iter().chain(&bases)))?;
    #[cfg(feature = "process")]
    if let [core] = dumps.as_slice()
        && let Some(code) = crate::cli::core_info::run(core, arguments.json)?
    {
        return Ok(code);
    }
    let source = arguments.dumps.layout.open_quietly(dumps, MapPolicy::default())?;
    let mut description = describe(&source)?;
    if arguments.classes {
        description.classes = completeness::explain(&source, classes(&source))?;
    }
    arguments.json.print(&description, |description| render::text(description, arguments.notes))?;
    // It has read all descriptors. What the log says of the crash can be lost in a dump that says it is complete.
    let is_damaged = description.complete && !completeness::has_failed() && completeness::has_lost(&source);
    if is_damaged {
        completeness::tell_warnings(&source);
    }
    let is_whole = description.complete && !is_damaged;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::INCOMPLETE) })
}

/// What a dump says of itself, as JSON.
#[cfg(feature = "mount")]
pub(crate) fn json(source: &Source) -> anyhow::Result<String> {
    let mut text =
        serde_json::to_string_pretty(&describe(source)?).context("cannot write the description as JSON")?;
    text.push('\n');
    Ok(text)
}

/// What a dump says of itself.
#[derive(Debug, Default, Serialize)]
struct Description {
    path: String,
    format: String,
    /// Whether it has to be decrypted first.
    encrypted: bool,
    version: Option<u32>,
    complete: bool,
    /// Why it is not complete.
    incomplete_because: Option<String>,
    release: Option<String>,
    kernel_version: Option<String>,
    hostname: Option<String>,
    machine: String,
    byte_order: &'static str,
    pointer_bytes: u32,
    page_size: u32,
    /// How far KASLR moved the kernel image in virtual memory, where VMCOREINFO says so.
    kaslr_offset: Option<u64>,
    build_id: Option<String>,
    /// Seconds since 1970.
    crash_time: Option<u64>,
    #[serde(flatten)]
    id: Option<CrashId>,
    /// The crash that the log describes.
    crash: Option<Crash>,
    cpus: u32,
    /// The field's bits; unknown for ELF files.
    dump_level: Option<u32>,
    memory_bytes: u64,
    /// Pages whose contents the file holds.
    pages: u64,
    first_pfn: u64,
    /// One more than the highest PFN.
    end_pfn: u64,
    /// The PFNs of this part of a split set.
    split: Option<(u64, u64)>,
    codecs: Vec<CodecCount>,
    zero_pages: u64,
    missing_pages: u64,
    /// Pages of which some bytes are stored and others were excluded.
    partly_stored_pages: u64,
    stored_bytes: Option<u64>,
    /// What was erased, from the note that makedumpfile adds to ELF dumps, or from the header.
    erased: Option<String>,
    /// Which owners' pages were kept, and of which file systems none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<String>,
    /// What is wrong with it as a whole.
    faults: Vec<String>,
    /// How its kernel was found, if the file does not say it.
    remarks: Vec<String>,
    /// Ranges of memory, by physical address: first byte, first byte after.
    memory_map: Vec<(u64, u64)>,
    notes: Vec<NoteInfo>,
    cpu_registers: Vec<CpuRegisters>,
    /// Pages per class, where they were asked for.
    classes: Vec<ClassCount>,
}

/// A note.
#[derive(Debug, Serialize)]
struct NoteInfo {
    name: String,
    kind: u32,
    bytes: usize,
}

/// Pages of one class.
#[derive(Debug, Serialize)]
struct ClassCount {
    class: &'static str,
    pages: u64,
    in_dump: u64,
}

/// Pages stored in one way.
#[derive(Debug, Serialize)]
struct CodecCount {
    codec: &'static str,
    pages: u64,
}

fn describe(source: &Source) -> anyhow::Result<Description> {
    let memory = source.memory();
    let info = notes::vmcoreinfo(memory.notes()).map(|(_, text)| VmcoreInfo::parse(text));
    let key = |name| info.as_ref().and_then(|info| info.get(name)).map(str::to_owned);
    let pieces = memory.ranges().pieces();
    let platform = memory.platform();
    // What has no log that can be read may still be a dump.
    let log = KernelLog::read_unerased(memory).unwrap_or_default();
    let lines = lines_of(&log);
    let shift = platform.page_size.shift();
    let mut description = Description {
        faults: source.warnings(),
        remarks: source.remarks().to_vec(),
        memory_map: ranges(memory),
        notes: notes::iter(memory.notes())
            .map(|note| NoteInfo {
                name: String::from_utf8_lossy(note.name).into_owned(),
                kind: note.kind,
                bytes: note.desc.len(),
            })
            .collect(),
        cpu_registers: registers_of(memory.notes(), platform),
        path: source.path().display().to_string(),
        release: key("OSRELEASE"),
        build_id: key("BUILD-ID"),
        crash_time: info.as_ref().and_then(|info| info.unsigned("CRASHTIME")),
        id: info.as_ref().map(|_| crash_id(memory.notes(), &lines)),
        // `dmesg` and `facts` have its lines.
        crash: Crash::find(&lines).map(|crash| Crash { text: String::new(), ..crash }),
        machine: platform.name(),
        byte_order: if platform.big_endian { "big" } else { "little" },
        pointer_bytes: if platform.wide { 8 } else { 4 },
        page_size: platform.page_size.bytes() as u32,
        kaslr_offset: key("KERNELOFFSET").and_then(|text| u64::from_str_radix(&text, 16).ok()),
        erased: notes::lines_of(memory.notes(), notes::ERASED),
        owners: notes::lines_of(memory.notes(), notes::OWNERS),
        cpus: notes::cpu_count(memory.notes()),
        memory_bytes: memory.ranges().bytes(),
        partly_stored_pages: memory.ranges().partly_stored(platform.page_size).count() as u64,
        first_pfn: pieces.first().map_or(0, |piece| piece.start >> shift),
        end_pfn: memory.ranges().end().div_ceil(1 << shift),
        ..Description::default()
    };
    match source.kind() {
        SourceKind::Elf(vmcore) => {
            let class = if platform.wide { "ELF64" } else { "ELF32" };
            description.format =
                if vmcore.is_flattened() { format!("flattened {class}") } else { class.into() };
            description.pages = stored_in_place(memory);
        }
        SourceKind::Image(image) => {
            description.format = match image.format() {
                ImageFormat::Raw => "raw image of memory".into(),
                ImageFormat::Lime => "image of memory by LiME".into(),
            };
            description.pages = stored_in_place(memory);
        }
        SourceKind::Kdump(dump) => describe_kdump(dump, "kdump-compressed", &mut description)?,
        SourceKind::Flattened(dump) => describe_kdump(dump, "flattened kdump-compressed", &mut description)?,
        SourceKind::Split(set) => describe_set(set, &mut description)?,
        SourceKind::Simulated(_) => {}
    }
    description.encrypted = source.is_encrypted();
    // Counts of descriptors tell less than what is wrong with the whole.
    if let Some(fault) = memory.faults().into_iter().next() {
        description.incomplete_because = Some(fault);
    }
    description.complete = description.incomplete_because.is_none();
    Ok(description)
}

/// The machine's memory without the seams between neighbouring segments.
fn ranges(memory: &dyn PhysMemory) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for piece in memory.ranges().pieces() {
        match out.last_mut() {
            Some(last) if last.1 == piece.start => last.1 = piece.end,
            _ => out.push((piece.start, piece.end)),
        }
    }
    out
}

/// Pages per class, by the struct pages.
fn classes(source: &Source) -> anyhow::Result<Vec<ClassCount>> {
    let memory = source.memory();
    let kernel = Kernel::discover(memory).with_context(|| source.path().display().to_string())?;
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let mut counts = [(0u64, 0u64); PageClass::COUNT];
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let mut exists = vec![0; classes.len().div_ceil(64)];
    let (mut stored, mut parts) = (exists.clone(), Vec::new());
    let page_size = kernel.page_size();
    for block in 0..kernel.blocks(memory.ranges().end_pfn(page_size)) {
        let first = kernel.block_pfns(block).start;
        memory.ranges().mark_pages(first, page_size, false, &mut exists);
        if exists.iter().all(|word| *word == 0) {
            continue;
        }
        memory.mark_stored_pages(page_size, first, &mut stored, &mut parts)?;
        scanner.scan(block, &mut classes)?;
        for page in bits::ones(&exists) {
            let count = &mut counts[classes[page] as usize];
            *count = (count.0 + 1, count.1 + u64::from(bits::get(&stored, page)));
        }
    }
    let named = PageClass::ALL.into_iter().zip(counts).filter(|(_, (pages, _))| *pages > 0);
    Ok(named.map(|(class, (pages, in_dump))| ClassCount { class: class.name(), pages, in_dump }).collect())
}

/// The parts together: what they say alike of the first, and the sums of what they hold.
fn describe_set(set: &SplitSet, description: &mut Description) -> anyhow::Result<()> {
    let format = format!("split set of {} kdump-compressed files", set.parts().len());
    let mut codecs = Vec::<CodecCount>::new();
    let (mut pages, mut missing, mut stored) = (0, 0, 0);
    for part in set.parts() {
        describe_kdump(part, &format, description)?;
        pages += description.pages;
        missing += description.missing_pages;
        stored += description.stored_bytes.unwrap_or(0);
        for found in description.codecs.drain(..) {
            match codecs.iter_mut().find(|known| known.codec == found.codec) {
                Some(known) => known.pages += found.pages,
                None => codecs.push(found),
            }
        }
    }
    if set.overlaps() {
        // Each counts the others' pages as missing.
        let present = pages.saturating_sub(missing);
        pages = stored_pages(set)?;
        missing = pages.saturating_sub(present);
    }
    description.split = None;
    (description.pages, description.missing_pages, description.stored_bytes) = (pages, missing, Some(stored));
    description.codecs = codecs;
    description.zero_pages = 0;
    description.incomplete_because = (missing > 0).then(|| format!("{missing} pages are missing"));
    Ok(())
}

/// Pages that should be in the file or files of `memory`.
fn stored_pages(memory: &dyn PhysMemory) -> anyhow::Result<u64> {
    let (mut words, mut parts) = ([0; 512], Vec::new());
    let mut pages = 0;
    let page_size = memory.platform().page_size;
    for first in (0..memory.ranges().end_pfn(page_size).number()).step_by(words.len() * 64) {
        memory.mark_stored_pages(page_size, Pfn::new(first), &mut words, &mut parts)?;
        pages += bits::count(&words);
    }
    Ok(pages)
}

/// Pages of a file that has them as they are.
fn stored_in_place(memory: &dyn PhysMemory) -> u64 {
    let stored = memory.ranges().pieces().iter().filter(|piece| piece.stored > 0);
    // A page of which two pieces have a part counts once.
    let (mut pages, mut end, shift) = (0, 0, memory.platform().page_size.shift());
    for piece in stored {
        let first = (piece.start >> shift).max(end);
        end = piece.end.div_ceil(1 << shift).max(first);
        pages += end - first;
    }
    pages
}

fn describe_kdump(dump: &KdumpFile, format: &str, description: &mut Description) -> anyhow::Result<()> {
    let info = dump.info();
    let census = dump.census()?;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    description.format = format.into();
    description.version = Some(info.version);
    description.release = text(&info.uts.release).or(description.release.take());
    description.kernel_version = text(&info.uts.version);
    description.hostname = text(&info.uts.nodename);
    description.machine = info.uts.machine.clone();
    if info.crash_time > 0 {
        description.crash_time = Some(info.crash_time as u64);
    }
    description.cpus = info.nr_cpus;
    description.dump_level = Some(info.dump_level);
    description.pages = info.dumped_pages;
    description.split = info.split.as_ref().map(|pfns| (pfns.start, pfns.end));
    description.codecs = [
        ("none", census.raw - census.shared.min(census.raw)),
        ("zlib", census.zlib),
        ("lzo", census.lzo),
        ("snappy", census.snappy),
        ("zstd", census.zstd),
    ]
    .into_iter()
    .filter(|(_, pages)| *pages > 0)
    .map(|(codec, pages)| CodecCount { codec, pages })
    .collect();
    description.zero_pages = census.shared;
    description.missing_pages = census.missing + census.truncated + census.damaged;
    description.stored_bytes = Some(census.stored_bytes);
    let erased = dump.eraseinfo()?;
    if !erased.is_empty() {
        description.erased = Some(String::from_utf8_lossy(&erased).into_owned());
    }
    description.incomplete_because = if census.truncated > 0 {
        Some(format!("it is truncated: {} pages are past its end", census.truncated))
    } else if census.damaged > 0 {
        Some(format!("{} page descriptors are invalid", census.damaged))
    } else if census.missing > 0 {
        Some(format!("{} pages are missing", census.missing))
    } else {
        None
    };
    if info.status & flags::EXCLUDED_VMEMMAP != 0 {
        description.erased.get_or_insert_default().push_str("struct pages of excluded pages\n");
    }
    Ok(())
}
