//! Makes tables of one dump, in a separate process for each stage. What a damaged dump does to a stage leaves the tables of the others.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use pagehaul_census::{Heading, count};
use pagehaul_facts::{Facts, Missing, SCHEMA_VERSION};
use pagehaul_inspect::{Machine, TriageReport};
use pagehaul_kernel::{AddressSpace, Kernel, KernelLog, VirtualMemory};
use pagehaul_physmem::file::{Sequential, is_url, shown};
use pagehaul_physmem::{MapPolicy, OpenError};
use pagehaul_present::sentence;
use pagehaul_redact::{Redaction, TaskName, task_names};
use pagehaul_sandbox::{Sandbox, limit_memory};
use pagehaul_trace::{Input, TraceFile};
use pagehaul_vmcore::{Source, SourceKind, open_file};
use sha2::{Digest, Sha256};

use crate::manifest::{EXTRACTOR, Row};
use crate::place::{Origin, Place, Quality};
use crate::stage::Stage;
use crate::table::{Key, Table};
use crate::tables::{self, DumpFile};
use crate::written::Unwritten;

/// Exit status of a stage that could not write a table.
pub(crate) const UNWRITTEN: u8 = 4;
/// Memory that one dump may take.
const MAX_MEMORY: u64 = 1 << 30;

/// Reasons that a row has, and bytes of each: the facts of others can hold any number.
const MAX_MISSING: usize = 256;
const MAX_REASON: usize = 1 << 10;

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
    /// Leave tables of an equal dump as they are.
    #[arg(long)]
    defer: bool,
    /// Replace tables of an equal dump, whichever comes first.
    #[arg(long)]
    take: bool,
    dumps: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &OneArguments) -> anyhow::Result<ExitCode> {
    // A system that refuses the limit still has the time limit.
    limit_memory(MAX_MEMORY);
    let path = arguments.dumps.first().map_or(Path::new(""), PathBuf::as_path);
    let mut damaged = false;
    let row = confine(arguments)
        .and_then(|redaction| extract(path, arguments, redaction, &mut damaged))
        .and_then(|row| answered().map(|()| row))
        .map(|row| (row, ExitCode::SUCCESS))
        .unwrap_or_else(|error| {
            let is_unwritten = error.downcast_ref::<Unwritten>().is_some();
            let code = if is_unwritten { ExitCode::from(UNWRITTEN) } else { ExitCode::SUCCESS };
            let refused = is_refused(path, &error);
            (Row { refused, ..Row::new(path, Some(sentence(error.chain()))) }, code)
        });
    let (mut row, code) = row;
    bound(&mut row.missing);
    crate::console::say(&serde_json::to_string(&Row { damaged, ..row })?)?;
    Ok(code)
}

/// Cuts off what is too long to be a reason.
fn bound(missing: &mut Vec<Missing>) {
    missing.truncate(MAX_MISSING);
    for text in missing.iter_mut().flat_map(|missing| [&mut missing.what, &mut missing.reason]) {
        text.truncate(text.floor_char_boundary(MAX_REASON));
    }
}

/// Whether a server kept back what was asked for. Each stage opens the dump again.
fn is_refused(path: &Path, error: &anyhow::Error) -> bool {
    pagehaul_remote::failure().is_some() || is_url(path) && error.chain().any(|why| why.is::<OpenError>())
}

/// Fails if a server did not send all bytes that were asked for. Tables of the rest would pass for those of the whole dump.
fn answered() -> anyhow::Result<()> {
    match pagehaul_remote::failure() {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

/// Confines this process to its dump and the tables. Returns the key, which only this reads.
fn confine(arguments: &OneArguments) -> anyhow::Result<Option<Redaction>> {
    let redaction = arguments.redact.as_deref().map(Redaction::from_file).transpose()?;
    // The file that the environment names.
    pagehaul_encryption::hold(None, &arguments.dumps)?;
    // What an old kernel cannot enforce is in the guide: the output of this process is a row.
    let _ = Sandbox::reading(&arguments.dumps).writing_below(arguments.to.clone()).enter()?;
    Ok(redaction)
}

/// Makes the tables of a stage. `damaged` says whether the dump was damaged where it was read, whatever else happens.
fn extract(
    path: &Path,
    arguments: &OneArguments,
    redaction: Option<Redaction>,
    damaged: &mut bool,
) -> anyhow::Result<Row> {
    let redaction = redaction.as_ref();
    let mut row = Row::new(path, None);
    row.size_bytes = arguments.dumps.iter().map(|path| Some(open_file(path).ok()?.size())).sum();
    if let Some(input) = open_recording(path)? {
        recording(&input, arguments, redaction, &mut row)?;
        return Ok(row);
    }
    if is_facts(path) {
        let facts = from_facts(path)?;
        let file = DumpFile { format: "facts", level: None, complete: None, size_bytes: None };
        let crash =
            Extraction { file, quality: Quality::of(&facts, &file), source: None, arguments, redaction };
        let place = crash.begin(&facts, &mut row);
        if !place.is_better(crash.origin(), &mut row) {
            crash.facts(facts, &[], &place, &mut row)?;
        }
        return Ok(row);
    }
    let source = pagehaul_images::open_all(&arguments.dumps, None, MapPolicy::default())?;
    let facts = Facts::read(source.memory(), EXTRACTOR.to_owned());
    let file = file(&source, row.size_bytes);
    let quality = Quality::of(&facts, &file);
    let crash = Extraction { file, quality, source: Some(&source), arguments, redaction };
    let place = crash.begin(&facts, &mut row);
    // Whether one that is equal stays is known when all stages have read this one.
    let origin = Origin { takes: arguments.take || arguments.defer, ..crash.origin() };
    if place.is_better(origin, &mut row) {
        return Ok(row);
    }
    let made = crash.stage(&source, facts, &place, &mut row);
    *damaged = source.met_damage();
    made.map(|()| row)
}

/// A stage of one crash.
struct Extraction<'a> {
    file: DumpFile,
    quality: Quality,
    /// Facts have none.
    source: Option<&'a Source>,
    arguments: &'a OneArguments,
    redaction: Option<&'a Redaction>,
}

impl<'a> Extraction<'a> {
    /// Notes what every stage knows, and returns where the tables are.
    fn begin(&self, facts: &Facts, row: &mut Row) -> Place<'a> {
        row.crash_id = Some(facts.id.crash_id.clone());
        row.time = facts.crash_time;
        row.complete = self.file.complete;
        row.host.clone_from(&facts.host);
        row.missing.extend(facts.damaged_id().cloned());
        if let (Some(redaction), Some(host)) = (self.redaction, &mut row.host) {
            *host = redaction.host(host);
        }
        let key = Key {
            column: "crash_id",
            id: facts.id.crash_id.clone(),
            schema_version: facts.schema_version,
            extractor: facts.extractor.clone(),
        };
        Place::new(&self.arguments.to, &self.arguments.only, key, facts.crash_time)
    }

    /// Makes the tables of its stage.
    fn stage(&self, source: &Source, facts: Facts, place: &Place<'_>, row: &mut Row) -> anyhow::Result<()> {
        match self.arguments.stage {
            Stage::Facts => {
                row.deferred = self.arguments.defer && place.has_equal(self.quality);
                if row.deferred {
                    return Ok(());
                }
                let tasks = self.redaction.map(|_| task_names(source.memory())).unwrap_or_default();
                self.facts(facts, &tasks, place, row)?;
            }
            Stage::Pages => {
                announce_tables(source);
                let kernel = Kernel::discover(source.memory())?;
                // Another dump is on the next CPU.
                let census = count(source.memory(), &kernel, Heading::default(), 1)?;
                self.put([tables::pages(&census, &place.key)], place, row)?;
                census.warnings.iter().for_each(|why| row.lacks(Stage::Pages.tables(), why));
            }
            Stage::Triage => {
                announce_tables(source);
                let space = AddressSpace::discover(source.memory())?;
                let memory = VirtualMemory::new(&space, source.memory());
                let machine = Machine::open(&space, &memory, source.memory().notes())?;
                let log = KernelLog::read_unerased(source.memory());
                let mut report = TriageReport::new(&machine, log.as_ref());
                let tables = tables::inside(&machine, &report, &place.key, self.redaction);
                self.put(tables, place, row)?;
                if let Some(redaction) = self.redaction {
                    // What is missing may name a task.
                    redaction.report(&mut report);
                }
                row.missing.extend(report.missing.iter().map(|why| {
                    let (what, reason) = why.split_once(": ").unwrap_or(("triage", why));
                    Missing { what: what.to_owned(), reason: reason.to_owned() }
                }));
            }
        }
        Ok(())
    }

    fn put(
        &self,
        tables: impl IntoIterator<Item = Table>,
        place: &Place<'_>,
        row: &mut Row,
    ) -> anyhow::Result<()> {
        answered()?;
        place.put(tables, Some(self.origin()), row)
    }

    /// What its tables are made of, as far as it was read.
    fn origin(&self) -> Origin {
        let damaged = self.source.is_some_and(Source::met_damage);
        let (quality, size) = (self.quality, self.file.size_bytes);
        Origin { quality, size, stage: self.arguments.stage, damaged, takes: self.arguments.take }
    }

    /// Writes the tables of facts. `tasks` are those that the dump has.
    fn facts(
        &self,
        mut facts: Facts,
        tasks: &[TaskName],
        place: &Place<'_>,
        row: &mut Row,
    ) -> anyhow::Result<()> {
        row.missing.clone_from(&facts.missing);
        if let Some(redaction) = self.redaction {
            redaction.facts(&mut facts, tasks);
        }
        self.put(tables::facts(&facts, &place.key, &self.file), place, row)
    }
}

/// Announces what leads to all pages of a dump on a server; that of a stream is in many pieces.
fn announce_tables(source: &Source) {
    if matches!(source.kind(), SourceKind::Kdump(_)) {
        source.memory().view().will_need_tables();
    }
}

/// Whether a file holds facts, by its name.
pub(crate) fn is_facts(path: &Path) -> bool {
    let path = shown(path);
    let name = path.as_os_str().to_string_lossy();
    let name = name.strip_suffix(".age").unwrap_or(&name);
    name.ends_with(".json") || name.ends_with(".json.zst")
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
    let file = TraceFile::from_input(input.clone())?;
    let id = hash(input)?;
    row.run_id = Some(id.clone());
    row.time = tables::started(file.info()).map(|ns| ns / 1_000_000_000);
    row.host.clone_from(&file.info().machine.hostname);
    if let (Some(redaction), Some(host)) = (redaction, &mut row.host) {
        *host = redaction.host(host);
    }
    let key = Key { column: "run_id", id, schema_version: SCHEMA_VERSION, extractor: EXTRACTOR.to_owned() };
    let place = Place::new(&arguments.to, &arguments.only, key, row.time);
    let (tables, missing) = tables::recording(input, &place.key, redaction)?;
    ensure!(!tables.is_empty(), "the recording has neither events of reclaim nor calls of functions");
    row.missing = missing;
    place.put(tables, None, row)
}

/// Identifies a recording: the first 128 bits of SHA-256 over its contents.
fn hash(input: &Input) -> anyhow::Result<String> {
    let (mut hash, mut buffer, mut offset) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        let count = input.read_at(offset, &mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(buffer.get(..count).unwrap_or_default());
        offset += count as u64;
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

fn file(source: &Source, size_bytes: Option<u64>) -> DumpFile {
    let format = match source.kind() {
        SourceKind::Elf(_) => "elf",
        SourceKind::Kdump(_) => "kdump",
        SourceKind::Flattened(_) => "flattened",
        SourceKind::Split(_) => "split",
        SourceKind::Image(_) => "image",
        SourceKind::Simulated(_) => "simulated",
    };
    DumpFile {
        format,
        // ELF files do not say it.
        level: source.dumps().first().map(|dump| dump.dump_level()),
        complete: Some(!source.is_incomplete() && !source.is_truncated()),
        size_bytes,
    }
}

/// Reads what `capture --facts` or `facts` wrote.
pub(crate) fn from_facts(path: &Path) -> anyhow::Result<Facts> {
    let file = open_file(path)?;
    let read = || format!("cannot read {}", file.path().display());
    let mut bytes = vec![0; file.size().min(Facts::MAX_BYTES) as usize];
    file.read_exact_at(0, &mut bytes).with_context(read)?;
    Facts::from_stored(&bytes).with_context(read)
}
