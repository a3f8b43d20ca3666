//! Reports of a dump that lost one page. A part that is not as in the report of the whole dump has a reason under "Missing".

mod common;

use std::path::Path;

use common::task;
use pagehaul_facts::Facts;
use pagehaul_inspect::{Machine, OnRequest, Requested, TriageReport};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_machine::PageSize;
use pagehaul_physmem::{MapPolicy, PhysMemory, Recorder, Wrapped};
use pagehaul_synth::{Era, Inside, Machine as Synthetic};
use pagehaul_test_support::lost::WithoutPage;
use pagehaul_vmcore::Source;
use serde_json::Value;

const PAGE: u64 = 4096;

/// Everything that is read of a dump: the report, and what is read on request.
struct Everything {
    report: Value,
    tasks: Value,
    stacks: Value,
    on_request: Value,
}

/// None if the kernel in it cannot be opened.
fn read(memory: &dyn PhysMemory) -> Option<Everything> {
    let kernel = AddressSpace::discover(memory).ok()?;
    let virt = VirtualMemory::new(&kernel, memory);
    let machine = Machine::open(&kernel, &virt, memory.notes()).ok()?;
    let report = TriageReport::new(&machine, Ok(&KernelLog::default()));
    let value = |value: serde_json::Result<Value>| value.unwrap();
    Some(Everything {
        tasks: value(serde_json::to_value(&report.tasks.all)),
        stacks: value(serde_json::to_value(report.stacks(&machine))),
        on_request: value(serde_json::to_value(OnRequest::read(&machine, &report, &Requested::ALL))),
        report: value(serde_json::to_value(report)),
    })
}

/// Members of reports, and the parts that they belong to.
const PARTS: [(&str, &[&str]); 11] = [
    ("cpus", &["cpus"]),
    ("states", &["tasks"]),
    ("blocked", &["tasks", "stacks"]),
    ("workers", &["tasks", "locks"]),
    // How long a task has waited is a fact of tasks.
    ("locks", &["tasks", "locks"]),
    ("memory", &["memory"]),
    ("slab", &["slab"]),
    ("vmalloc", &["vmalloc"]),
    ("requests", &["requests"]),
    ("suspended", &["suspended"]),
    ("net", &["network"]),
];

/// Returns what differs in a report without a page and is not said to be missing there.
fn denied(whole: &Everything, lost: &Everything) -> Vec<String> {
    let gaps = lost.report["gaps"].as_array().cloned().unwrap_or_default();
    // Names of functions are those of modules; lost symbols make gaps everywhere.
    let has_gap = |parts: &[&str]| {
        gaps.iter().any(|gap| gap["part"] == "modules" || parts.iter().any(|part| gap["part"] == *part))
    };
    let mut denied = Vec::new();
    // A stack that ends early says so, and a frame that was searched on the stack, too.
    let doubts = |value: &Value| {
        let text = value.to_string();
        text.matches("\"complete\":false").count() + text.matches("\"guess\":true").count()
    };
    let mut compare = |what: &str, whole: &Value, lost: &Value, is_said: bool| {
        if whole != lost && !is_said && doubts(lost) <= doubts(whole) {
            denied.push(format!("{what}: {}", difference(whole, lost)));
        }
    };
    for (member, parts) in PARTS {
        compare(member, &whole.report[member], &lost.report[member], has_gap(parts));
    }
    compare("modules", &whole.report["modules"], &lost.report["modules"], has_gap(&["modules"]));
    compare("tasks", &whole.tasks, &lost.tasks, has_gap(&["tasks"]));
    compare(
        "system",
        &whole.report["system"],
        &lost.report["system"],
        !lost.report["missing"].as_array().unwrap().is_empty(),
    );
    for (whole, lost) in whole.stacks.as_array().unwrap().iter().zip(lost.stacks.as_array().unwrap()) {
        compare("stack", whole, lost, lost["missing"].is_string() || has_gap(&["tasks", "cpus", "stacks"]));
    }
    for (section, whole) in whole.on_request.as_object().unwrap() {
        let lost = &lost.on_request[section];
        let is_said = lost["broken"].as_array().is_some_and(|whys| !whys.is_empty());
        compare(section, whole, lost, is_said || has_gap(&[]));
    }
    denied
}

/// The first place at which two values differ.
fn difference(whole: &Value, lost: &Value) -> String {
    match (whole, lost) {
        (Value::Object(a), Value::Object(b)) => {
            let key = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key)).unwrap();
            format!(".{key}{}", difference(&whole[key], &lost[key]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let at = (0..a.len()).find(|at| a[*at] != b[*at]).unwrap();
            format!("[{at}]{}", difference(&a[at], &b[at]))
        }
        _ => {
            let short = |value: &Value| value.to_string().chars().take(200).collect::<String>();
            format!(": {}, then {}", short(whole), short(lost))
        }
    }
}

/// Loses each of at most `most` pages that reports are made of, one at a time. Returns what was denied, and how many reports there
/// were.
fn lose_each_page(memory: &dyn PhysMemory, most: usize) -> (Vec<String>, usize) {
    let recorder = Recorder::new(memory);
    let whole = read(&recorder).unwrap();
    let size = PageSize::KIB_4;
    let runs = recorder.runs(size).into_iter();
    let pages: Vec<u64> = runs
        .flat_map(|run| (run.start.start(size).get()..run.end.start(size).get()).step_by(PAGE as usize))
        .collect();
    let (mut found, mut reports) = (Vec::new(), 0);
    for page in pages.iter().step_by(pages.len().div_ceil(most).max(1)) {
        let Some(lost) = read(&Wrapped::through(WithoutPage(*page), memory)) else { continue };
        reports += 1;
        found.extend(denied(&whole, &lost).into_iter().map(|what| format!("without {page:#x}: {what}")));
    }
    (found, reports)
}

#[test]
fn what_a_lost_page_held_is_not_denied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let mut machine = Synthetic::new(Era::V6_12);
    let inside = Inside {
        tasks: (1..40).map(|pid| task(pid, 1 + pid % 2)).collect(),
        clock: 60,
        free: 100_000,
        caches: vec![("dentry", 400, 8_400), ("ext4_inode_cache", 900, 27_000)],
        areas: vec![("vmalloc", 65_536), ("module_alloc", 40_960)],
        modules: vec![("ext4", 1 << 20), ("virtio_blk", 1 << 15)],
        recorded: None,
        spread: true,
        ..Inside::default()
    };
    machine.inside(0x4000, &inside);
    machine.build().elf().write(&path).unwrap();
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let (denied, reports) = lose_each_page(source.memory(), 400);
    assert!(reports > 20, "{reports}");
    assert_eq!(denied, Vec::<String>::new(), "{reports} reports");
}

/// `PAGEHAUL_DUMP` is a dump, `PAGEHAUL_ROUNDS` how many of the pages that its report needs are lost, one at a time.
#[test]
#[ignore = "needs a dump of a real machine"]
fn what_a_lost_page_of_a_real_dump_held_is_not_denied() {
    let path = std::env::var("PAGEHAUL_DUMP").unwrap();
    let rounds = std::env::var("PAGEHAUL_ROUNDS").map_or(100, |text| text.parse().unwrap());
    let source = Source::open(Path::new(&path), MapPolicy::default()).unwrap();
    let (denied, reports) = lose_each_page(source.memory(), rounds);
    println!("{reports} reports");
    assert_eq!(denied, Vec::<String>::new());
}

#[test]
fn the_name_of_the_machine_on_a_lost_page_is_not_called_excluded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    Synthetic::new(Era::V6_12).build().elf().write(&path).unwrap();
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let kernel = AddressSpace::discover(source.memory()).unwrap();
    let virt = VirtualMemory::new(&kernel, source.memory());
    let page = virt.physical(kernel.new_utsname_at().unwrap()).unwrap();
    let lost = Facts::read(&Wrapped::through(WithoutPage(page), source.memory()), "test".into());
    let why = lost.missing.iter().find(|missing| missing.what == "host").unwrap();
    assert!(why.reason.starts_with("the page of init_uts_ns is lost: "), "{}", why.reason);
}
