//! `pagehaul triage`.

mod owners;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use pagehaul_capture::OwnerRules;
use pagehaul_erase::{Found, Subject};
use pagehaul_inspect::{
    Detail, LastLine, Machine, OnRequest, Part, Requested, StackTrace, Task, TaskStack, TriageReport, detail,
    difference, per_cpu_free,
};
use pagehaul_keep::Choice;
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_physmem::{MapPolicy, PhysMemory, Recorder};
use pagehaul_render::triage::{self as draw, Section};
use pagehaul_vmcore::{Source, SourceKind};
use serde::Serialize;

use self::owners::Owners;
use crate::cli::completeness;
use crate::cli::options::{Identity, ImageLayout, Json, LIVE, Verbose};
use crate::cli::pstore::{self, Records};
use crate::cli::redact::{Names, Redact, Redaction};
use crate::crash_report::{CrashReport, Outcome, PerCpuFree, limit_process};
#[cfg(feature = "html")]
use crate::files;
use crate::printed;
use crate::sandbox::{self, Sandbox};

/// Lines of the log on a web page.
const LINES: usize = 2000;
/// Tasks of a machine whose stacks are all on a web page; of more of them, those of blocked tasks are.
#[cfg(feature = "html")]
const UNWOUND: usize = 20_000;

/// Explain why a machine crashed or stalled, from its dump alone
///
/// Needs no debug symbols: names, types and unwind tables are in the kernel's memory, at every dump level. Every line rests
/// on the dump; a frame that was searched on the stack instead of unwound has a `?`. --json holds all tasks and stacks
/// only with --tasks and --stacks, the sections from workqueues to ipc only if they are named with --section, and one task alone with
/// --pid. Of a dump without the kernel's symbols, as of an incomplete one that has lost them, it shows what the notes and the log tell. Of
/// the records that a crash left in pstore it shows what the log tells, with --json the facts.
///
/// Exit status: 0, the report was printed; 1, the dump cannot be read, or has neither symbols nor a log; 2, the command line is wrong; 3,
/// the dump or the records of pstore are incomplete, or a page that was needed is damaged: what is there was reported.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  pagehaul triage dump
  pagehaul triage dump --section waits --section memory
  pagehaul triage dump --tasks
  pagehaul triage dump --stacks
  pagehaul triage dump --pid 1
  pagehaul triage dump --html report.html
  pagehaul triage s3://crashes/host7/dump.flat
  pagehaul triage --live
  pagehaul triage /sys/fs/pstore/dmesg-ramoops-*
  pagehaul triage diff before after
  pagehaul triage dump --json"
)]
pub(crate) struct TriageArguments {
    #[command(subcommand)]
    command: Option<TriageCommand>,
    /// The dump, or the parts of a split set: files, or URLs (http://, https://, s3://BUCKET/KEY)
    #[arg(required_unless_present = "live", conflicts_with = "live", value_name = "DUMP")]
    dumps: Vec<PathBuf>,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    layout: ImageLayout,
    /// Read the running kernel (/proc/kcore) instead of a dump. Needs root
    #[arg(long)]
    live: bool,
    /// Print this section in full; may be repeated. Those from workqueues to ipc are in no report unless they are asked for
    #[arg(short, long, value_parser = sections(), value_name = "NAME")]
    section: Vec<Section>,
    /// List all tasks
    #[arg(long)]
    tasks: bool,
    /// Print the stacks of all tasks
    #[arg(long)]
    stacks: bool,
    /// Print one task: its state, flags, cgroup, parents, locks, stack, registers, open files and memory mappings
    #[arg(long, value_name = "PID", conflicts_with_all = ["tasks", "stacks", "section"])]
    #[cfg_attr(feature = "redact", arg(conflicts_with = "redact"))]
    pid: Option<u32>,
    #[command(flatten)]
    redact: Redact,
    #[command(flatten)]
    json: Json,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// Write all sections as one web page, which needs no network
    #[cfg(feature = "html")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "tasks", "stacks", "pid", "section"])]
    html: Option<PathBuf>,
    /// Replace FILE if it exists
    #[cfg(feature = "html")]
    #[arg(long, requires = "html")]
    force: bool,
    /// For `capture --triage`: print the report and the pages that it is made of
    #[arg(long, hide = true)]
    for_capture: bool,
    /// With --for-capture: print the free pages on per-CPU lists instead
    #[arg(long, hide = true, requires = "for_capture")]
    per_cpu_lists: bool,
    /// With --for-capture: print where these are instead
    #[arg(long, hide = true, requires = "for_capture", value_delimiter = ',')]
    erasure: Vec<Subject>,
    /// With --for-capture: print by what the pages of these owners are known instead
    #[arg(long, hide = true, requires = "for_capture", value_parser = choice)]
    owner_rules: Option<Choice>,
}

fn choice(text: &str) -> Result<Choice, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[derive(Debug, Subcommand)]
enum TriageCommand {
    Diff(DiffArguments),
}

/// Compare two dumps: findings, tasks, new stacks of blocked tasks, memory, slab, vmalloc, modules
///
/// Both can be of different kernels: stacks are compared by their functions.
///
/// Exit status: 0, the changes were printed; 1, a dump cannot be read, or has neither symbols nor a log; 2, the command line is wrong; 3, a
/// dump is incomplete, or a page that was needed is damaged, and what is there was compared.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul triage diff idle stalled
  pagehaul triage diff --json idle stalled")]
struct DiffArguments {
    /// The dump to compare with
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The dump in which changes are looked for
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    json: Json,
}

/// The sections by name.
fn sections() -> impl TypedValueParser<Value = Section> {
    let named = |section: Section| PossibleValue::new(section.name()).help(section.about());
    let of = |name: String| Section::ALL.into_iter().find(|section| section.name() == name);
    PossibleValuesParser::new(Section::ALL.map(named)).try_map(move |name| of(name).ok_or("no section"))
}

#[cfg(feature = "html")]
impl TriageArguments {
    /// The files that the page does not replace.
    fn sources(&self) -> impl Iterator<Item = &Path> {
        let live = self.live.then_some(Path::new(LIVE));
        live.into_iter().chain(self.files())
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.dumps.iter().map(PathBuf::as_path).chain(self.redact.file()).chain(self.identity.file())
    }
}

/// What is read besides the report.
#[derive(Clone, Copy, Default)]
struct Wanted {
    /// The owners of memory, also if the report does not need them.
    owners: bool,
    /// Lines of the log.
    lines: usize,
}

/// What is known of a dump.
struct Explained<'a> {
    report: TriageReport,
    owners: Option<Owners>,
    /// The end of the log, longer than the report's.
    #[cfg_attr(not(feature = "html"), allow(dead_code))]
    lines: Vec<LastLine>,
    /// What hides names in what is read later.
    redaction: Option<(&'a Redaction, Names)>,
}

impl Explained<'_> {
    fn on_request(&self, machine: &Machine<'_>, asked: &[Requested]) -> OnRequest {
        let mut found = OnRequest::read(machine, &self.report, asked);
        if let Some((redaction, names)) = &self.redaction {
            redaction.on_request(&mut found, names);
        }
        found
    }
}

#[derive(Serialize)]
struct OneTask<'a> {
    task: &'a Task,
    detail: Detail,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<&'a StackTrace>,
    /// What is missing that may concern the task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<&'a str>,
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a TriageReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<&'a Owners>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<&'a [Task]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<Vec<TaskStack>>,
    #[serde(flatten)]
    on_request: OnRequest,
}

pub(crate) fn run(arguments: &TriageArguments) -> anyhow::Result<ExitCode> {
    if arguments.for_capture {
        limit_process();
        pagehaul_encryption::hold(None, &arguments.dumps)?;
        sandbox::enter(Sandbox::reading(&arguments.dumps))?;
        let dumps = &arguments.dumps;
        if !arguments.erasure.is_empty() {
            return print_outcome(erasure(dumps, &arguments.layout, &arguments.erasure));
        }
        if let Some(choice) = &arguments.owner_rules {
            return print_outcome(owner_rules(dumps, &arguments.layout, choice));
        }
        return match arguments.per_cpu_lists {
            true => print_outcome(free_on_lists(dumps, &arguments.layout)),
            false => print_outcome(for_capture(dumps, &arguments.layout)),
        };
    }
    if let Some(TriageCommand::Diff(dumps)) = &arguments.command {
        return diff(dumps);
    }
    let dumps = if arguments.live { &[PathBuf::from(LIVE)][..] } else { &arguments.dumps };
    #[cfg(feature = "html")]
    if let Some(path) = &arguments.html {
        files::check(path, arguments.sources(), arguments.force)?;
    }
    let redaction = arguments.redact.key()?;
    arguments.identity.hold(dumps)?;
    let confined = Sandbox::reading(dumps);
    #[cfg(feature = "html")]
    let confined = confined.writing(&arguments.html);
    sandbox::enter(confined)?;
    #[cfg(feature = "html")]
    let html = arguments.html.is_some();
    #[cfg(not(feature = "html"))]
    let html = false;
    let wanted = Wanted {
        owners: html || arguments.section.contains(&Section::Memory),
        lines: if html { LINES } else { 0 },
    };
    if !arguments.live
        && let Some(records) = pstore::read(dumps, redaction.is_none())?
    {
        return show_pstore(arguments, records, redaction.as_ref());
    }
    let open = || match redaction {
        None => arguments.layout.open(dumps),
        Some(_) => arguments.layout.open_quietly(dumps, MapPolicy::default()),
    };
    let live = dumps.iter().any(|dump| dump == Path::new(LIVE));
    let ((), status) = explain(open, live, wanted, redaction.as_ref(), |machine, explained, name| {
        show(arguments, machine, explained, name)
    })?;
    Ok(status)
}

/// Reads the dump that `open` opens, and passes the report of it on, with the name of the dump. The owners of
/// memory are found if the report needs them, or if they are wanted. Also returns the exit status.
fn explain<T>(
    open: impl FnOnce() -> anyhow::Result<Source>,
    live: bool,
    wanted: Wanted,
    redaction: Option<&Redaction>,
    then: impl FnOnce(&Machine<'_>, Explained<'_>, &str) -> anyhow::Result<T>,
) -> anyhow::Result<(T, ExitCode)> {
    let source = open()?;
    let is_told = Cell::new(false);
    let result = explain_source(&source, live, wanted, redaction, |machine, explained, name| {
        is_told.set(completeness::has_lost(&source));
        then(machine, explained, name)
    });
    if live {
        return Ok((result?, ExitCode::SUCCESS));
    }
    let result = completeness::explain(&source, result)?;
    // What was met while the report was printed.
    if !is_told.get() && completeness::has_lost(&source) && redaction.is_none() {
        completeness::tell_warnings(&source);
    }
    Ok((result, completeness::status(&source)))
}

fn explain_source<T>(
    source: &Source,
    live: bool,
    wanted: Wanted,
    redaction: Option<&Redaction>,
    then: impl FnOnce(&Machine<'_>, Explained<'_>, &str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let name = source.path().display().to_string();
    let memory = source.memory();
    // Those of a stream are in many pieces.
    if matches!(source.kind(), SourceKind::Kdump(_)) {
        memory.view().will_need_tables();
    }
    let kernel = AddressSpace::discover(memory).with_context(|| name.clone())?;
    let virtual_memory = VirtualMemory::new(&kernel, memory);
    let log = KernelLog::read_unerased(memory);
    let mut machine = match Machine::open(&kernel, &virtual_memory, memory.notes()) {
        // The notes and the log say much of a crash. A whole dump without them has nothing to show.
        Err(why)
            if !live && !completeness::has_failed() && (log.is_ok() || completeness::has_lost(source)) =>
        {
            Machine::without_symbols(&kernel, &virtual_memory, memory.notes(), &why)
        }
        opened => opened.with_context(|| name.clone())?,
    };
    if live {
        machine = machine.running();
    }
    let mut report = TriageReport::read(&machine, log.as_ref());
    let mut lines =
        log.as_ref().map_or_else(|_| Vec::new(), |log| TriageReport::last_lines(log, wanted.lines));
    let redaction = redaction.map(|redaction| (redaction, redaction.report(&mut report)));
    if let Some((redaction, names)) = &redaction {
        redaction.lines(&mut lines, names);
    }
    report.judge();
    report.missing.extend(completeness::warnings(source));
    let mut owners = None;
    // It reads all struct pages, and a running machine changes its pages meanwhile.
    if !live && report.symbols_known && (wanted.owners || owners::are_evidence(&report)) {
        match owners::find(&machine, memory, redaction.as_ref(), &mut report) {
            Ok(found) => owners = found,
            Err(why) => {
                report.missing.push(format!("owners of memory: {}", pagehaul_present::sentence(why.chain())))
            }
        }
    }
    // What the owners met is damaged, too.
    let of_dump = completeness::warnings(source).into_iter();
    let more: Vec<String> = of_dump.filter(|why| !report.missing.contains(why)).collect();
    report.missing.extend(more);
    if let Some(owners) = owners.as_mut().filter(|_| completeness::has_lost(source)) {
        owners::note_loss(owners);
    }
    if live {
        report
            .missing
            .push("the kernel ran on while its memory was read: facts can contradict each other".into());
    }
    let Some((hides, _)) = &redaction else {
        return then(&machine, Explained { report, owners, lines, redaction }, &name);
    };
    // Directories of dumps have the names of their machines.
    let hidden = hides.name("path", &name);
    report.missing.iter_mut().for_each(|why| *why = why.replace(&name, &hidden));
    then(&machine, Explained { report, owners, lines, redaction }, &hidden)
}

fn show(
    arguments: &TriageArguments,
    machine: &Machine<'_>,
    explained: Explained<'_>,
    name: &str,
) -> anyhow::Result<()> {
    #[cfg(feature = "html")]
    if let Some(path) = &arguments.html {
        let Explained { report, owners, lines, .. } = &explained;
        // They are many only if they are alike.
        let stacks = if report.tasks.all.len() <= UNWOUND { report.stacks(machine) } else { Vec::new() };
        let page = draw::Page {
            on_request: &explained.on_request(machine, &Requested::ALL),
            stacks: &stacks,
            log: lines,
            memory: owners.as_ref().filter(|_| report.memory.by_pages).map(owners::memory_use),
            report,
        };
        let page = draw::page(&page, name);
        files::write(path, &page, arguments.sources(), arguments.force)?;
        return say!("{}: written", path.display());
    }
    let asked: Vec<Requested> = arguments.section.iter().filter_map(|section| section.requested()).collect();
    let on_request = explained.on_request(machine, &asked);
    let Explained { mut report, owners, .. } = explained;
    if let Some(pid) = arguments.pid {
        let task = report.tasks.by_pid(pid).with_context(|| match pid {
            0 => format!("{name}: 0 is the PID of the idle task of each CPU: --section cpus shows them"),
            _ if report.gaps.is_whole(Part::Tasks) => format!("{name}: no task has the PID {pid}"),
            _ => format!("{name}: no task that could be read has the PID {pid}: not all tasks are known"),
        })?;
        let detail = detail(machine, &report.cpus, task);
        let stack = report.stack(machine, task);
        let no_stack = stack.missing.iter().map(String::as_str);
        let missing = report.missing_of_task().chain(no_stack).collect();
        let one = OneTask { task, detail, stack: stack.stack.as_ref(), missing };
        return arguments.json.print(&one, |one| draw::one_task(&report, one.task, &one.detail, &stack));
    }
    if arguments.json.json {
        draw::name_commands(&mut report);
        let stacks = arguments.stacks.then(|| report.stacks(machine));
        let tasks = arguments.tasks.then_some(report.tasks.all.as_slice());
        return printed::json(&Printed {
            report: &report,
            owners: owners.as_ref(),
            tasks,
            stacks,
            on_request,
        });
    }
    let text = if arguments.tasks || arguments.stacks {
        let stacks = if arguments.stacks { report.stacks(machine) } else { Vec::new() };
        // The list has no place for it.
        report.missing_of_task_list().for_each(|why| tell!("pagehaul: {why}"));
        draw::tasks(&report, &stacks)
    } else if arguments.section.is_empty() {
        draw::summary(&report, name)
    } else {
        let mut text = draw::sections(&report, &on_request, &arguments.section);
        if let Some(owners) = owners.filter(|_| arguments.section.contains(&Section::Memory)) {
            text += &format!("\n{}", owners::text(&owners));
        }
        text
    };
    printed::report(&text)
}

/// Shows what the end of the log tells.
fn show_pstore(
    arguments: &TriageArguments,
    mut records: Records,
    redaction: Option<&Redaction>,
) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "html")]
    let html = arguments.html.is_some();
    #[cfg(not(feature = "html"))]
    let html = false;
    let asks_for_more = !arguments.section.is_empty() || arguments.pid.is_some();
    if html || asks_for_more || arguments.tasks || arguments.stacks {
        anyhow::bail!(
            "pstore has only the end of the log: neither sections, tasks nor stacks, and no web page is made of it"
        );
    }
    if let Some(redaction) = redaction {
        redaction.facts(&mut records.facts, &[]);
        // Directories of records may have the names of their machines.
        let path = arguments.dumps.first().map(|path| path.display().to_string()).unwrap_or_default();
        records.about.name = redaction.name("path", &path);
    }
    if arguments.json.json {
        records.tell();
    }
    arguments.json.print(&records.facts, |facts| pagehaul_render::pstore::text(facts, &records.about))?;
    Ok(records.status())
}

fn diff(arguments: &DiffArguments) -> anyhow::Result<ExitCode> {
    arguments.identity.hold(&[arguments.before.clone(), arguments.after.clone()])?;
    sandbox::enter(Sandbox::reading([&arguments.before, &arguments.after]))?;
    let report = |dump: &PathBuf| {
        let source = pagehaul_images::open(dump, None, MapPolicy::default())?;
        let read =
            explain_source(&source, false, Wanted::default(), None, |_, explained, _| Ok(explained.report));
        let read = completeness::explain(&source, read)?;
        // They are on standard error, too, for those who keep the changes alone.
        completeness::tell_warnings(&source);
        anyhow::Ok((read, completeness::status(&source)))
    };
    let ((before, of_before), (after, of_after)) = (report(&arguments.before)?, report(&arguments.after)?);
    let difference = difference(&before, &after);
    let names = [&arguments.before, &arguments.after].map(|dump| dump.display().to_string());
    let text = |difference: &_| draw::difference(difference, names.each_ref().map(String::as_str));
    arguments.json.print(&difference, text)?;
    Ok(if of_before == ExitCode::SUCCESS { of_after } else { of_before })
}

/// Makes the one screen, and records which pages that took, with those of all stacks.
fn for_capture(dumps: &[PathBuf], layout: &ImageLayout) -> anyhow::Result<CrashReport> {
    let source = layout.open_quietly(dumps, MapPolicy::default())?;
    let recorder = Recorder::new(source.memory());
    let kernel = AddressSpace::discover(&recorder)?;
    let unrecorded = VirtualMemory::new(&kernel, source.memory());
    let memory = VirtualMemory::new(&kernel, &recorder);
    let log = KernelLog::read_unerased(&recorder);
    let machine = match Machine::open_recorded(&kernel, &memory, &unrecorded, recorder.notes()) {
        Err(why) if log.is_ok() => Machine::without_symbols(&kernel, &memory, recorder.notes(), &why),
        opened => opened?,
    };
    let report = TriageReport::new(&machine, log.as_ref());
    report.stacks(&machine);
    let text = draw::summary(&report, &source.path().display().to_string());
    let runs = recorder.runs(kernel.page_size()).into_iter();
    Ok(CrashReport { text, pages: runs.map(|run| run.start.number()..run.end.number()).collect() })
}

/// Finds the free pages on per-CPU lists.
fn free_on_lists(dumps: &[PathBuf], layout: &ImageLayout) -> anyhow::Result<PerCpuFree> {
    let source = layout.open_quietly(dumps, MapPolicy::default())?;
    let kernel = AddressSpace::discover(source.memory())?;
    let memory = VirtualMemory::new(&kernel, source.memory());
    let machine = Machine::open(&kernel, &memory, source.memory().notes())?;
    let free = per_cpu_free(&machine)?;
    Ok(PerCpuFree { pages: free.pages, skipped: free.skipped })
}

/// Finds what a capture overwrites.
fn erasure(dumps: &[PathBuf], layout: &ImageLayout, subjects: &[Subject]) -> anyhow::Result<Found> {
    let source = layout.open_quietly(dumps, MapPolicy::default())?;
    Ok(pagehaul_erase::find(source.memory(), subjects)?)
}

/// Finds by what a capture knows the pages of owners.
fn owner_rules(dumps: &[PathBuf], layout: &ImageLayout, choice: &Choice) -> anyhow::Result<OwnerRules> {
    let source = layout.open_quietly(dumps, MapPolicy::default())?;
    Ok(pagehaul_keep::find(source.memory(), choice)?)
}

fn print_outcome<T: Serialize>(made: anyhow::Result<T>) -> anyhow::Result<ExitCode> {
    printed::json(
        &made.map_or_else(|error| Outcome::Error(pagehaul_present::sentence(error.chain())), Outcome::Report),
    )?;
    Ok(ExitCode::SUCCESS)
}
