//! `pagehaul pages`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_capture::Source;
use pagehaul_census::{Census, Heading, html, take};
use pagehaul_kernel::{Hints, Kernel};
use pagehaul_physmem::{MapPolicy, PAGE_SHIFT};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, percent};

use crate::cli::options::Threads;
use crate::{files, printed};

/// Show memory usage by page class, node and zone, block size and address
///
/// The counts come from the kernel's struct pages, so that a filtered dump shows as much as a complete one. Memory without
/// struct pages is no-struct-page; pages whose struct page is missing or contradicts itself are undecided.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul pages dump
  pagehaul pages dump --html memory.html")]
pub(crate) struct PagesArguments {
    /// The dump, or the parts of a split set
    #[arg(required = true, value_name = "DUMP")]
    dumps: Vec<PathBuf>,
    /// Print JSON, including the map
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a self-contained HTML page with a map of physical memory
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    threads: Threads,
}

pub(crate) fn run(arguments: &PagesArguments) -> anyhow::Result<ExitCode> {
    let source = Source::open_all(&arguments.dumps, MapPolicy::default())?;
    let memory = source.memory();
    let place = || source.path().display().to_string();
    let kernel = Kernel::discover(memory, Hints::from_memory(memory)).with_context(place)?;
    let threads = arguments.threads.count();
    let name = source.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let heading = Heading {
        dump: name.unwrap_or_else(place),
        release: Some(kernel.release().to_owned()),
        crash_time: kernel.crash_time(),
    };
    let mut census = take(memory, &kernel, heading, threads).with_context(place)?;
    census.remarks.splice(0..0, source.remarks());
    if let Some(path) = &arguments.html {
        let page = html(&census).context("cannot make the page")?;
        files::write(path, &page, arguments.dumps.iter().map(PathBuf::as_path))?;
        return Ok(ExitCode::SUCCESS);
    }
    printed::out(|out| {
        if !arguments.json {
            return print(&census, out);
        }
        serde_json::to_writer(&mut *out, &census)?;
        writeln!(out)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(census: &Census, out: &mut dyn Write) -> io::Result<()> {
    let size = |pages: u64| bytes(pages << PAGE_SHIFT);
    let mut table = Table::new(["class", "pages", "size", "share", "in the dump"]);
    for class in &census.classes {
        table.row([
            class.class,
            &count(class.pages),
            &size(class.pages),
            &percent(class.pages, census.pages),
            &count(class.in_dump),
        ]);
    }
    let kept: u64 = census.classes.iter().map(|class| class.in_dump).sum();
    table.row(["all", &count(census.pages), &size(census.pages), "", &count(kept)]);
    write!(out, "{table}")?;
    if !census.zones.is_empty() {
        writeln!(out)?;
        let names: BTreeSet<&str> =
            census.zones.iter().flat_map(|zone| zone.classes.keys().copied()).collect();
        let used: Vec<&str> =
            census.class_names.iter().copied().filter(|name| names.contains(name)).collect();
        let mut table =
            Table::new(["node", "zone", "size"].into_iter().chain(used.iter().copied())).left([0, 1]);
        for zone in &census.zones {
            let mut row = vec![zone.node.to_string(), zone.zone.into(), size(zone.classes.values().sum())];
            row.extend(
                used.iter().map(|class| zone.classes.get(class).map_or(String::new(), |pages| count(*pages))),
            );
            table.row(row);
        }
        write!(out, "{table}")?;
    }
    writeln!(out)?;
    let orders: BTreeSet<u32> = census.orders.values().flat_map(|orders| orders.keys().copied()).collect();
    let mut table =
        Table::new(std::iter::once("blocks of order".into()).chain(orders.iter().map(u32::to_string)));
    for class in &census.class_names {
        let Some(found) = census.orders.get(class) else { continue };
        let cell = |order: &u32| found.get(order).map_or(String::new(), |blocks| count(*blocks));
        table.row(std::iter::once((*class).to_owned()).chain(orders.iter().map(cell)));
    }
    write!(out, "{table}")?;
    for remark in &census.remarks {
        writeln!(out, "note: {remark}")?;
    }
    Ok(())
}
