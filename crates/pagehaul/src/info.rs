//! `pagehaul info`.

use std::process::ExitCode;

use anyhow::Context;
use pagehaul_capture::{Source, SourceKind};
use pagehaul_kdump::KdumpFile;
use pagehaul_kdump::format::flags;
use pagehaul_kernel::VmcoreInfo;
use pagehaul_memory::elf::ElfVmcore;
use pagehaul_memory::{MapPolicy, PAGE_SHIFT, PhysMemory, notes};
use serde::Serialize;

use crate::args::InfoArguments;
use crate::units::{bytes, count, time};

pub(crate) fn run(arguments: &InfoArguments) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "process")]
    if let Some(code) = crate::core_info::run(arguments)? {
        return Ok(code);
    }
    let source = Source::open(&arguments.dump, MapPolicy::default())?;
    let description = describe(&source)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&description).context("cannot make the description")?);
    } else {
        print!("{}", description.render());
    }
    Ok(ExitCode::SUCCESS)
}

/// What a dump says of itself.
#[derive(Debug, Default, Serialize)]
struct Description {
    path: String,
    format: String,
    version: Option<u32>,
    complete: bool,
    /// Why it is not complete.
    incomplete_because: Option<String>,
    release: Option<String>,
    kernel_version: Option<String>,
    hostname: Option<String>,
    machine: String,
    build_id: Option<String>,
    /// Seconds since 1970.
    crash_time: Option<u64>,
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
    stored_bytes: Option<u64>,
    erased: Option<String>,
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
    let mut description = Description {
        path: source.path().display().to_string(),
        release: key("OSRELEASE"),
        build_id: key("BUILD-ID"),
        crash_time: info.as_ref().and_then(|info| info.unsigned("CRASHTIME")),
        machine: memory.arch().name(),
        cpus: notes::cpu_count(memory.notes()),
        memory_bytes: memory.ranges().bytes(),
        first_pfn: pieces.first().map_or(0, |piece| piece.start >> PAGE_SHIFT),
        end_pfn: memory.ranges().end().div_ceil(1 << PAGE_SHIFT),
        ..Description::default()
    };
    match source.kind() {
        SourceKind::Elf(vmcore) => describe_elf(vmcore, &mut description),
        SourceKind::Kdump(dump) => describe_kdump(dump, "kdump-compressed", &mut description)?,
        SourceKind::Flattened(dump) => describe_kdump(dump, "flattened kdump-compressed", &mut description)?,
        // Neither is a single file.
        SourceKind::Split(_) | SourceKind::Simulated(_) => {}
    }
    Ok(description)
}

fn describe_elf(vmcore: &ElfVmcore, description: &mut Description) {
    description.format = "ELF64".into();
    let stored = vmcore.ranges().pieces().iter().filter(|piece| piece.stored > 0);
    // Fractional pages count once for each piece that has a part of them.
    description.pages =
        stored.map(|piece| piece.end.div_ceil(1 << PAGE_SHIFT) - (piece.start >> PAGE_SHIFT)).sum();
    let missing = vmcore.missing_bytes();
    description.incomplete_because = if vmcore.is_incomplete() {
        Some("its writer did not finish".into())
    } else {
        (missing > 0).then(|| format!("it is cut: {missing} bytes are missing at its end"))
    };
    description.complete = description.incomplete_because.is_none();
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
    description.missing_pages = census.missing + census.cut_off + census.damaged;
    description.stored_bytes = Some(census.stored_bytes);
    let erased = dump.eraseinfo()?;
    description.erased = (!erased.is_empty()).then(|| String::from_utf8_lossy(&erased).into_owned());
    description.incomplete_because = if dump.is_incomplete() {
        Some("its writer did not finish".into())
    } else if census.cut_off > 0 {
        Some(format!("it is cut: {} pages are behind its end", census.cut_off))
    } else if census.damaged > 0 {
        Some(format!("{} page descriptors make no sense", census.damaged))
    } else {
        None
    };
    description.complete = description.incomplete_because.is_none();
    if info.status & flags::EXCLUDED_VMEMMAP != 0 {
        description.erased.get_or_insert_default().push_str("struct pages of pages left out\n");
    }
    Ok(())
}

impl Description {
    fn render(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                out.push_str(&format!("{name:14}{value}\n"));
            }
        };
        let version = self.version.map_or(String::new(), |version| format!(", version {version}"));
        row("format", Some(format!("{}{version}", self.format)));
        row(
            "complete",
            Some(self.incomplete_because.as_ref().map_or("yes".into(), |why| format!("no: {why}"))),
        );
        row("kernel", self.release.clone());
        row("", self.kernel_version.clone());
        row("machine", Some(self.machine.clone()));
        row("host", self.hostname.clone());
        row("build ID", self.build_id.clone());
        row("crash time", self.crash_time.map(time));
        row("CPUs", Some(self.cpus.to_string()));
        row("dump level", self.dump_level.map(level));
        row("memory", Some(bytes(self.memory_bytes)));
        row("PFNs", Some(format!("{:#x} to {:#x}", self.first_pfn, self.end_pfn.saturating_sub(1))));
        row(
            "part",
            self.split.map(|(start, end)| format!("PFNs {start:#x} to {:#x}", end.saturating_sub(1))),
        );
        row("pages", Some(format!("{} ({})", count(self.pages), bytes(self.pages << PAGE_SHIFT))));
        for codec in &self.codecs {
            row("", Some(format!("{} {}", count(codec.pages), codec.codec)));
        }
        if self.zero_pages > 0 {
            row("", Some(format!("{} share one page (zeros)", count(self.zero_pages))));
        }
        if self.missing_pages > 0 {
            row("", Some(format!("{} missing", count(self.missing_pages))));
        }
        row("stored", self.stored_bytes.map(bytes));
        row("erased", self.erased.clone().map(|text| text.trim_end().replace('\n', "; ")));
        out
    }
}

/// "31 (zero, cache, cache-private, user, free)".
fn level(bits: u32) -> String {
    let names = ["zero", "cache", "cache-private", "user", "free"];
    let set: Vec<&str> = (0..5).filter(|bit| bits >> bit & 1 == 1).map(|bit| names[bit as usize]).collect();
    if set.is_empty() { bits.to_string() } else { format!("{bits} ({})", set.join(", ")) }
}
