//! Makes tables of one dump, in a separate process for each stage. What a damaged dump does to a stage leaves the tables of the others.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use pagehaul_census::{Heading, count};
use pagehaul_codec::FrameDecompressor;
use pagehaul_facts::{Facts, Missing, SCHEMA_VERSION};
use pagehaul_inspect::{Machine, Report};
use pagehaul_kernel::{AddressSpace, Kernel, KernelLog, VirtualMemory};
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::{Sequential, is_url, shown};
use pagehaul_sandbox::{Sandbox, limit_memory};
use pagehaul_trace::{Input, TraceFile};
use pagehaul_vmcore::{Source, SourceKind, open_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::read::TableFile;
use crate::table::{Key, Table};
use crate::tables::{self, DumpFile};
use pagehaul_redact::{Redaction, TaskName, task_names};

/// Memory that one dump may take.
const MOST_MEMORY: u64 = 1 << 30;
/// This program, in the tables.
const EXTRACTOR: &str = concat!("pagehaul-fleet ", env!("CARGO_PKG_VERSION"));
/// Bytes of a facts file, and of what it decompresses to.
const MOST_FACTS: u64 = 64 << 20;

/// Why a dump makes no tables where those of another are.
pub(crate) const HAS_MORE: &str = "the tables of another dump of this crash stay: it has more";

/// What a process makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// `dumps` and `log_lines`, from notes and log. All tables of a recording.
    Facts,
    /// `page_classes`, from struct pages.
    Pages,
    /// The other tables of a crash, from what triage reads.
    Triage,
}

impl Stage {
    /// Returns the names of its tables.
    pub(crate) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Facts => &["dumps", "log_lines"],
            Self::Pages => &["page_classes"],
            Self::Triage => &["memory_state", "tasks", "stacks", "modules", "slab_caches", "vmalloc_callers"],
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct OneArguments {
    #[arg(long)]
    stage: Stage,
    #[arg(long)]
    to: PathBuf,
    #[arg(long)]
    redact: Option<PathBuf>,
    /// Names of the tables to make; all if there are none.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    dumps: Vec<PathBuf>,
}

/// A row of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The dump, as it was named; the first part of a split set.
    pub(crate) path: PathBuf,
    /// Why there are no tables; null if there are.
    pub(crate) error: Option<String>,
    /// Identifies the crash.
    pub(crate) crash_id: Option<String>,
    /// Identifies the recording.
    pub(crate) run_id: Option<String>,
    /// Names and numbers of rows of its tables.
    pub(crate) tables: Vec<(String, usize)>,
    /// What is absent, and why.
    pub(crate) missing: Vec<Missing>,
}

impl Row {
    /// Returns the row of a dump without tables.
    pub(crate) fn new(path: &Path, error: Option<String>) -> Self {
        Self {
            path: shown(path),
            error,
            crash_id: None,
            run_id: None,
            tables: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Notes why tables are absent.
    pub(crate) fn lacks(&mut self, tables: &[&str], reason: &str) {
        self.missing.extend(
            tables.iter().map(|what| Missing { what: (*what).to_owned(), reason: reason.to_owned() }),
        );
    }
}

pub(crate) fn run(arguments: &OneArguments) -> anyhow::Result<ExitCode> {
    // A system that refuses the limit still has the time limit.
    limit_memory(MOST_MEMORY);
    let path = arguments.dumps.first().map_or(Path::new(""), PathBuf::as_path);
    let row = confine(arguments)
        .and_then(|redaction| extract(path, arguments, redaction))
        .unwrap_or_else(|error| Row::new(path, Some(format!("{error:#}"))));
    crate::say(&serde_json::to_string(&row)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Confines this process to its dump and the tables. Returns the key, which only this reads.
fn confine(arguments: &OneArguments) -> anyhow::Result<Option<Redaction>> {
    let redaction = arguments.redact.as_deref().map(Redaction::from_file).transpose()?;
    // What an old kernel cannot enforce is in the guide: the output of this process is a row.
    let _ = Sandbox::reading(&arguments.dumps)
        .writing_below(arguments.to.clone())
        .enter()
        .context("cannot start the process that fetches URLs")?;
    Ok(redaction)
}

fn extract(path: &Path, arguments: &OneArguments, redaction: Option<Redaction>) -> anyhow::Result<Row> {
    let mut row = Row::new(path, None);
    if let Some(input) = open_recording(path)? {
        recording(&input, arguments, redaction.as_ref(), &mut row)?;
        return Ok(row);
    }
    if is_facts(path) {
        let facts = from_facts(path)?;
        let file = DumpFile { format: "facts", level: None, complete: None, size_bytes: None };
        let place = Place::of(&facts, arguments);
        if !place.has_more(&facts, &file, arguments.stage, &mut row) {
            write_facts(
                facts,
                &file,
                redaction.as_ref().map(|redaction| (redaction, [].as_slice())),
                &place,
                &mut row,
            )?;
        }
        return Ok(row);
    }
    let source = Source::open_all(&arguments.dumps, MapPolicy::default())?;
    let facts = Facts::read(source.memory(), EXTRACTOR.to_owned());
    let place = Place::of(&facts, arguments);
    let file = file(&source, &arguments.dumps);
    row.crash_id = Some(facts.id.crash_id.clone());
    if place.has_more(&facts, &file, arguments.stage, &mut row) {
        return Ok(row);
    }
    match arguments.stage {
        Stage::Facts => {
            let tasks = if redaction.is_some() { task_names(source.memory()) } else { Vec::new() };
            let redaction = redaction.as_ref().map(|redaction| (redaction, tasks.as_slice()));
            write_facts(facts, &file, redaction, &place, &mut row)?;
        }
        Stage::Pages => {
            let kernel = Kernel::discover(source.memory())?;
            // Another dump is on the next CPU.
            let census = count(source.memory(), &kernel, Heading::default(), 1)?;
            place.put(tables::pages(&census, &place.key), &mut row)?;
            census.warnings.iter().for_each(|why| row.lacks(Stage::Pages.tables(), why));
        }
        Stage::Triage => {
            let space = AddressSpace::discover(source.memory())?;
            let memory = VirtualMemory::new(&space, source.memory());
            let machine = Machine::open(&space, &memory, source.memory().notes())?;
            let log = KernelLog::read(source.memory()).unwrap_or_default();
            let report = Report::new(&machine, &log);
            for table in tables::inside(&machine, &report, &place.key, redaction.as_ref()) {
                place.put(table, &mut row)?;
            }
            row.missing.extend(report.missing.iter().map(|why| {
                let (what, reason) = why.split_once(": ").unwrap_or(("triage", why));
                Missing { what: what.to_owned(), reason: reason.to_owned() }
            }));
        }
    }
    Ok(row)
}

/// Whether a file holds facts, by its name.
pub(crate) fn is_facts(path: &Path) -> bool {
    let path = shown(path);
    let name = path.as_os_str().to_string_lossy();
    name.ends_with(".json") || name.ends_with(".json.zst")
}

/// Where the tables of a crash are.
struct Place<'a> {
    to: &'a Path,
    /// Names of the tables to make; all if there are none.
    only: &'a [String],
    key: Key,
    month: String,
}

impl<'a> Place<'a> {
    fn of(facts: &Facts, arguments: &'a OneArguments) -> Self {
        let key = Key {
            column: "crash_id",
            id: facts.id.crash_id.clone(),
            schema_version: facts.schema_version,
            extractor: facts.extractor.clone(),
        };
        Self { to: &arguments.to, only: &arguments.only, key, month: month(facts.crash_time) }
    }

    /// Returns the place of a recording, whose ID is that of its contents.
    fn of_recording(input: &Input, arguments: &'a OneArguments) -> anyhow::Result<Self> {
        let (mut hash, mut buffer, mut offset) = (Sha256::new(), vec![0; 1 << 20], 0);
        loop {
            let count = input.read_at(offset, &mut buffer)?;
            if count == 0 {
                break;
            }
            hash.update(buffer.get(..count).unwrap_or_default());
            offset += count as u64;
        }
        let id = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let key =
            Key { column: "run_id", id, schema_version: SCHEMA_VERSION, extractor: EXTRACTOR.to_owned() };
        let started =
            tables::started(TraceFile::from_input(input.clone())?.info()).map(|ns| ns / 1_000_000_000);
        Ok(Self { to: &arguments.to, only: &arguments.only, key, month: month(started) })
    }

    fn path(&self, table: &str) -> PathBuf {
        let directory = self.to.join(table).join(format!("v={SCHEMA_VERSION}"));
        directory.join(format!("month={}", self.month)).join(format!("{}.parquet", self.key.id))
    }

    /// Whether the tables that are there come of a dump of this crash that has more. `row` says so.
    fn has_more(&self, facts: &Facts, file: &DumpFile, stage: Stage, row: &mut Row) -> bool {
        let own = Quality {
            crash: facts.crash.is_some(),
            complete: file.complete != Some(false),
            dump: file.format != "facts",
        };
        let more = Quality::of_file(&self.path("dumps")).is_some_and(|there| there > own);
        if more {
            row.crash_id = Some(facts.id.crash_id.clone());
            row.lacks(stage.tables(), HAS_MORE);
        }
        more
    }

    /// Writes a table that has rows.
    fn put(&self, table: Table, row: &mut Row) -> anyhow::Result<()> {
        let wanted = self.only.is_empty() || self.only.iter().any(|name| name == table.name);
        if table.rows > 0 && wanted {
            row.tables.push((table.name.to_owned(), table.rows));
            put(&self.path(table.name), |out| Ok(table.write(out)?))?;
        }
        Ok(())
    }
}

fn write_facts(
    mut facts: Facts,
    file: &DumpFile,
    redaction: Option<(&Redaction, &[TaskName])>,
    place: &Place<'_>,
    row: &mut Row,
) -> anyhow::Result<()> {
    row.crash_id = Some(facts.id.crash_id.clone());
    row.missing.clone_from(&facts.missing);
    if let Some((redaction, tasks)) = redaction {
        redaction.facts(&mut facts, tasks);
    }
    for table in tables::facts(&facts, &place.key, file) {
        place.put(table, row)?;
    }
    Ok(())
}

/// Opens a recording. Returns `None` for another file.
fn open_recording(path: &Path) -> anyhow::Result<Option<Input>> {
    let file = open_file(path)?;
    let mut start = [0; 16];
    let count =
        file.read_at(0, &mut start).with_context(|| format!("cannot read {}", file.path().display()))?;
    if !TraceFile::is_binary(start.get(..count).unwrap_or_default()) {
        return Ok(None);
    }
    // A server's is read several times, and small.
    Ok(Some(if is_url(path) {
        Input::copy(&mut Sequential::new(file), &shown(path))?
    } else {
        Input::open(path)?
    }))
}

/// Makes the tables of a recording.
fn recording(
    input: &Input,
    arguments: &OneArguments,
    redaction: Option<&Redaction>,
    row: &mut Row,
) -> anyhow::Result<()> {
    let place = Place::of_recording(input, arguments)?;
    let (tables, missing) = tables::recording(input, &place.key, redaction)?;
    ensure!(!tables.is_empty(), "the recording has neither events of reclaim nor calls of functions");
    row.run_id = Some(place.key.id.clone());
    row.missing = missing;
    tables.into_iter().try_for_each(|table| place.put(table, row))
}

/// What decides between two dumps of a crash: a truncated one must not replace the tables of an intact one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Quality {
    crash: bool,
    complete: bool,
    dump: bool,
}

impl Quality {
    /// Reads it from a file of the table `dumps`. `None` if the file is missing or damaged: then it may be replaced.
    fn of_file(path: &Path) -> Option<Self> {
        let [kind, complete, format] =
            TableFile::open(path).ok()?.read(0, ["kind", "complete", "format"]).ok()?;
        Some(Self {
            crash: kind.text_at(0).is_some(),
            complete: complete.number_at(0) != Some(0),
            dump: format.text_at(0) != Some("facts"),
        })
    }
}

fn file(source: &Source, dumps: &[PathBuf]) -> DumpFile {
    let format = match source.kind() {
        SourceKind::Elf(_) => "elf",
        SourceKind::Kdump(_) => "kdump",
        SourceKind::Flattened(_) => "flattened",
        SourceKind::Split(_) => "split",
        SourceKind::Simulated(_) => "simulated",
    };
    DumpFile {
        format,
        // ELF files do not say it.
        level: source.dumps().first().map(|dump| dump.dump_level()),
        complete: Some(!source.is_incomplete()),
        size_bytes: dumps.iter().map(|path| Some(open_file(path).ok()?.size())).sum(),
    }
}

/// Reads what `capture --facts` or `facts` wrote.
pub(crate) fn from_facts(path: &Path) -> anyhow::Result<Facts> {
    let file = open_file(path)?;
    let path = file.path();
    let read = || format!("cannot read {}", path.display());
    let mut bytes = vec![0; file.size().min(MOST_FACTS) as usize];
    file.read_exact_at(0, &mut bytes).with_context(read)?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        let mut text = Vec::new();
        FrameDecompressor::new()?.decompress(&bytes, &mut text, MOST_FACTS as usize).with_context(read)?;
        bytes = text;
    }
    let facts: Facts =
        serde_json::from_slice(&bytes).with_context(|| format!("{} holds no facts", path.display()))?;
    if facts.schema_version != SCHEMA_VERSION {
        bail!(
            "{} has schema version {}; this program knows {SCHEMA_VERSION}",
            path.display(),
            facts.schema_version
        );
    }
    // It becomes the name of a file.
    if facts.id.crash_id.len() != 32 || !facts.id.crash_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("{}: crash_id is not 32 hexadecimal digits", path.display());
    }
    Ok(facts)
}

/// `2026-11`, in UTC.
fn month(crash_time: Option<u64>) -> String {
    let time = crash_time.and_then(|time| jiff::Timestamp::from_second(i64::try_from(time).ok()?).ok());
    time.map_or_else(|| "unknown".to_owned(), |time| time.strftime("%Y-%m").to_string())
}

/// Writes a file. Readers see all of it or nothing, and another run that writes it at the same time does no harm.
pub(crate) fn put(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(context)?;
    let file = tempfile::NamedTempFile::new_in(directory).with_context(context)?;
    let mut out = BufWriter::new(file);
    write(&mut out).with_context(context)?;
    let file = out.into_inner().map_err(|error| error.into_error()).with_context(context)?;
    file.as_file().sync_data().with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(())
}
