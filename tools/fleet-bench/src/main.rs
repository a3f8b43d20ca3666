//! Tables of synthetic crashes, and how long reports on them take.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Parser;
use pagehaul_facts::SCHEMA_VERSION;
use pagehaul_fleet::{Key, Table, Values, compact_all, files, report_text};
use pagehaul_present::{Table as Rows, number};

/// 2026-11-01, in seconds since 1970.
const NOVEMBER: u64 = 1_793_491_200;
const MONTH: &str = "month=2026-11";
const CLASSES: [&str; 8] =
    ["kernel", "slab", "cache", "cache-private", "anon", "hugetlb", "free", "page-table"];
const ORDERS: usize = 5;
const ITEMS: [&str; 6] = ["managed", "free", "free_per_cpu", "min", "low", "high"];
const ZONES: [&str; 3] = ["DMA", "DMA32", "Normal"];

/// Measure reports on synthetic tables
///
/// Writes tables of N crashes to a new directory: dumps, page_classes, memory_state, and tasks. Measures a report on the small files,
/// compaction, and a report on the compact ones.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory of the tables, which must not exist. It stays
    directory: PathBuf,
    /// Crashes
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    crashes: u64,
    /// Tasks of each crash
    #[arg(long, value_name = "N", default_value_t = 500)]
    tasks: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = &Arguments::parse();
    let directory = arguments.directory.as_path();
    ensure!(!directory.exists(), "{} exists", directory.display());
    let mut results = Rows::new(["", "seconds", "files", "bytes", "tasks"]);
    let mut measure = |name: &str, work: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<()> {
        let start = Instant::now();
        work()?;
        let seconds = start.elapsed().as_secs_f64();
        let (count, bytes) = size(directory)?;
        let rows = number::count(arguments.crashes * arguments.tasks);
        let counts = [number::count(count), number::bytes(bytes), rows];
        results.row([name.to_owned(), format!("{seconds:.2}")].into_iter().chain(counts));
        Ok(())
    };
    measure("write", &|| write(arguments))?;
    measure("report on small files", &|| report_text(directory).map(drop))?;
    measure("compact", &|| compact_all(directory).map(drop))?;
    for _ in 0..3 {
        measure("report on compact files", &|| report_text(directory).map(drop))?;
    }
    print!("{results}");
    Ok(())
}

fn size(tables: &Path) -> anyhow::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for table in ["dumps", "page_classes", "memory_state", "tasks"] {
        for path in files(tables, table)? {
            sum = (sum.0 + 1, sum.1 + fs::metadata(path)?.len());
        }
    }
    Ok(sum)
}

fn write(arguments: &Arguments) -> anyhow::Result<()> {
    for number in 0..arguments.crashes {
        for table in tables(number, arguments.tasks) {
            let directory =
                arguments.directory.join(table.name).join(format!("v={SCHEMA_VERSION}")).join(MONTH);
            let path = directory.join(format!("{}.parquet", id(number)));
            let context = || format!("cannot write {}", path.display());
            fs::create_dir_all(&directory).with_context(context)?;
            let out = BufWriter::new(File::create(&path).with_context(context)?);
            table.write(out).with_context(context)?;
        }
    }
    Ok(())
}

/// splitmix64.
fn random(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

fn id(number: u64) -> String {
    format!("{:016x}{number:016x}", random(number))
}

fn tables(number: u64, tasks: u64) -> [Table; 4] {
    let key = Key {
        column: "crash_id",
        id: id(number),
        schema_version: SCHEMA_VERSION,
        extractor: "bench".to_owned(),
    };
    let seed = random(number);
    let pick = |salt: u64, most: u64| random(seed ^ salt) % most;
    // A few signatures have most of the crashes.
    let sig = pick(1, 300).min(pick(2, 300)).min(pick(3, 300));
    let text = |text: String| Values::text([Some(text)]);
    let time = i64::try_from(NOVEMBER + pick(4, 30 * 86_400)).unwrap_or_default() * 1_000_000;
    let dumps = Table::new(
        "dumps",
        &key,
        [
            ("sig", text(format!("{:016x}", random(sig)))),
            ("frames", Values::texts([vec![format!("function_{sig}"), "caller".to_owned()]])),
            ("title", text(format!("bug in function_{sig}"))),
            ("kind", text(if sig == 7 { "requested" } else { "bug" }.to_owned())),
            ("release", text(format!("6.{}.{}", pick(5, 4), pick(6, 9)))),
            ("host", text(format!("host{}", pick(7, 2_000)))),
            ("crash_time", Values::Time(vec![Some(time)])),
            ("complete", Values::Bool(vec![Some(true)])),
            ("format", text("kdump".to_owned())),
            ("level", Values::int([Some(31)])),
            ("size_bytes", Values::long([Some(1_u64 << 30)])),
        ],
    );
    let classes: Vec<_> =
        CLASSES.iter().flat_map(|class| (0..ORDERS).map(move |order| (*class, order))).collect();
    let page_classes = Table::new(
        "page_classes",
        &key,
        [
            ("class", Values::text(classes.iter().map(|(class, _)| Some(*class)))),
            ("order", Values::int(classes.iter().map(|(_, order)| Some(*order)))),
            ("pages", Values::long((0..classes.len() as u64).map(|row| Some(pick(100 + row, 1 << 20))))),
        ],
    );
    let items: Vec<_> = ZONES.iter().flat_map(|zone| ITEMS.iter().map(move |item| (*zone, *item))).collect();
    let memory_state = Table::new(
        "memory_state",
        &key,
        [
            ("node", Values::int(items.iter().map(|_| Some(0)))),
            ("zone", Values::text(items.iter().map(|(zone, _)| Some(*zone)))),
            ("item", Values::text(items.iter().map(|(_, item)| Some(*item)))),
            ("value", Values::long((0..items.len() as u64).map(|row| Some(pick(200 + row, 1 << 20))))),
        ],
    );
    let of_task = |salt: u64, most: u64| move |task: u64| random(seed ^ (task << 8) ^ salt) % most;
    let state = |task| if of_task(10, 50)(task) == 0 { "D" } else { "S" };
    let tasks = Table::new(
        "tasks",
        &key,
        [
            ("pid", Values::int((0..tasks).map(|task| Some(task + 1)))),
            ("comm", Values::text((0..tasks).map(|task| Some(format!("program{}", of_task(11, 80)(task)))))),
            ("state", Values::text((0..tasks).map(|task| Some(state(task))))),
            (
                "stack_id",
                Values::text((0..tasks).map(|task| Some(format!("{:016x}", of_task(12, 300)(task))))),
            ),
            ("since_run_ns", Values::long((0..tasks).map(|task| Some(of_task(13, 1 << 40)(task))))),
        ],
    );
    [dumps, page_classes, memory_state, tasks]
}
