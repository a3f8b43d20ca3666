//! `pagehaul pages`.

mod diff;
mod live;
mod owners;
mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use pagehaul_census::{Heading, count};
use pagehaul_kernel::Kernel;
use pagehaul_owners::{Effort, References};
use pagehaul_render::{census as draw, owners as draw_owners};
use pagehaul_vmcore::Source;

use crate::cli::completeness;
use crate::cli::options::{Dumps, Html, Json, Threads, Verbose};
use crate::cli::read::number;
use crate::cli::redact::{Redact, Redaction};
use crate::exit;
use crate::printed;
use crate::sandbox::{self, Sandbox};
use crate::usage;

/// Show memory usage by page class, node and zone, block size and address
///
/// The counts come from the kernel's struct pages, so that a filtered dump shows as much as a complete one. Memory without
/// struct pages is no-struct-page; pages whose struct page is missing or contradicts itself are undecided.
/// JSON and web page include a map of physical memory.
///
/// --owners puts every page that the kernel's allocator manages into one row: files with their paths, processes, slab caches, vmalloc
/// callers, page tables and so on; what has no known owner is a row, too. The rows are compared with the kernel's own counters,
/// and every difference is printed. Needs no debug symbols; works at every dump level.
///
/// With --live it reads the running kernel, whose pages change meanwhile; with --interval it prints what grew since the last time.
/// `pages diff` says what grew between two dumps, or between outputs of --owners --json.
///
/// Exit status: 0, the pages were counted; 1, the dump cannot be read; 2, the command line is wrong; 3, the dump is incomplete, or a page
/// that was needed is damaged, and what is there was counted.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    mut_arg("dumps", |dumps| dumps.required(false).required_unless_present("live")),
    after_help = "Examples:
  pagehaul pages dump
  pagehaul pages dump --owners
  pagehaul pages --owners --live --json > before
  pagehaul pages --owners --live --interval 60
  pagehaul pages diff before after
  pagehaul pages dump --pfn 0x1234
  pagehaul pages dump --html memory.html
  pagehaul pages dump --owners --html owners.html"
)]
pub(crate) struct PagesArguments {
    #[command(subcommand)]
    command: Option<PagesCommand>,
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    #[command(flatten)]
    json: Json,
    /// Show who owns the memory instead: files, processes, slab caches and other owners of all pages
    #[arg(long)]
    owners: bool,
    /// With --owners, guess who has pages that nothing marks by pointers to them: reads all of the kernel's memory. Without it,
    /// only if more than 1 % of the memory has no known owner, and the dump is on no server
    #[arg(long, requires = "owners")]
    references: bool,
    /// Read the running kernel (/proc/kcore) instead of a dump. Needs root
    #[arg(long, requires = "owners", conflicts_with_all = ["dumps", "html"])]
    live: bool,
    /// With --live, print after each so many seconds what grew, until interrupted
    #[arg(long, value_name = "SECONDS", requires = "live", value_parser = clap::value_parser!(u64).range(1..=86400))]
    interval: Option<u64>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show one page instead, by its PFN (0x for hexadecimal): its class, the rule that decided, which levels exclude it
    #[arg(long, value_name = "PFN", value_parser = number, conflicts_with_all = ["html", "owners"])]
    pfn: Option<u64>,
    #[command(flatten)]
    redact: Redact,
    #[command(flatten)]
    html: Html,
    #[command(flatten)]
    threads: Threads,
}

#[derive(Debug, Subcommand)]
enum PagesCommand {
    Diff(diff::DiffArguments),
}

impl PagesArguments {
    /// The files that no output replaces.
    fn sources(&self) -> impl Iterator<Item = &Path> {
        let dumps = self.dumps.dumps.iter().map(PathBuf::as_path);
        dumps.chain(self.redact.file()).chain(self.dumps.identity.file())
    }
}

pub(crate) fn run(arguments: &PagesArguments) -> anyhow::Result<ExitCode> {
    if let Some(PagesCommand::Diff(moments)) = &arguments.command {
        return diff::run(moments);
    }
    if arguments.live {
        return live::run(arguments);
    }
    // A dump, which --live excludes, waives what clap requires.
    if arguments.interval.is_some() {
        return Err(usage::wrong("--interval needs --live"));
    }
    let dumps = &arguments.dumps.dumps;
    arguments.html.check(arguments.sources())?;
    let redaction = arguments.redact.key()?;
    arguments.dumps.identity.hold(dumps)?;
    sandbox::enter(Sandbox::reading(dumps).writing(&arguments.html.html))?;
    let source = arguments.dumps.layout.open(dumps)?;
    let is_incomplete = completeness::explain(&source, show(arguments, &source, redaction.as_ref()))?;
    if is_incomplete && !completeness::has_failed() {
        return Ok(ExitCode::from(exit::INCOMPLETE));
    }
    Ok(completeness::status(&source))
}

/// Returns whether pages that it needed were lost.
fn show(arguments: &PagesArguments, source: &Source, redaction: Option<&Redaction>) -> anyhow::Result<bool> {
    let memory = source.memory();
    let place = || source.path().display().to_string();
    let kernel = Kernel::discover(memory).with_context(place)?;
    if let Some(pfn) = arguments.pfn {
        let page = page::find(memory, &kernel, pfn).with_context(place)?;
        return arguments.json.print(&page, page::text).map(|()| false);
    }
    let threads = arguments.threads.count();
    let name = source.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(place);
    // Files of dumps can have the names of their machines.
    let hidden = redaction.map(|redaction| redaction.name("path", &place()));
    if arguments.owners {
        let references = if arguments.references { References::Always } else { References::Above(1) };
        let balance = owners::find(source, &kernel, Effort { threads, references }, redaction)?;
        let page = || Ok(draw_owners::page(&balance, &hidden.unwrap_or(name)));
        if !arguments.html.write(page, arguments.sources())? {
            arguments.json.print(&balance, draw_owners::text)?;
        }
        return Ok(balance.incomplete);
    }
    let heading = Heading {
        dump: hidden.clone().unwrap_or(name),
        release: Some(kernel.space().release().to_owned()),
        crash_time: kernel.space().crash_time(),
    };
    let mut census = count(memory, &kernel, heading, threads).with_context(place)?;
    census.warnings.splice(0..0, completeness::warnings(source));
    if let Some(hidden) = hidden {
        census.warnings.iter_mut().for_each(|why| *why = why.replace(&place(), &hidden));
    }
    if arguments
        .html
        .write(|| draw::html(&census).context("cannot build the web page"), arguments.sources())?
    {
        return Ok(false);
    }
    if arguments.json.json {
        printed::json_line(&census)?
    } else {
        printed::report(&draw::text(&census))?
    }
    Ok(false)
}
