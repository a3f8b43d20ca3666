//! Balances of dumps that have each lost one page. Where such a balance differs from that of the whole dump, it says that something is
//! missing.

mod common;

use std::path::Path;

use common::balance_of;
use pagehaul_machine::PageSize;
use pagehaul_owners::{Balance, RowKind};
use pagehaul_physmem::{MapPolicy, PhysMemory, Recorder, Wrapped};
use pagehaul_synth::{Cgroup, Cgroups, Era, Guest, Inside, Machine, Task, Unmarked};
use pagehaul_test_support::lost::WithoutPage;
use pagehaul_vmcore::Source;
use serde_json::Value;

const PAGE: u64 = 4096;

/// What sentences begin with that say why a row lacks pages.
fn subjects(kind: RowKind) -> &'static [&'static str] {
    match kind {
        RowKind::KvmTables => &["page tables of KVM"],
        RowKind::RingBuffers => &["ring buffers", "BPF maps", "open files", "tasks"],
        RowKind::Cma => &["CMA"],
        RowKind::Sockets => &["open files", "queues of sockets", "tasks"],
        RowKind::IoUring => &["io_uring", "open files", "tasks"],
        RowKind::Pipes => &["open files", "tasks"],
        RowKind::PerCpuLists => &["free pages on per-CPU lists", "per-CPU lists"],
        RowKind::Vmalloc | RowKind::KernelStacks => &["vmalloc areas", "tasks"],
        RowKind::PageTables => &["page tables of the kernel", "page directories", "tasks"],
        RowKind::File | RowKind::Shmem => &["files"],
        RowKind::PerCpu => &["per-CPU memory"],
        _ => &[],
    }
}

/// Members of a balance, and what sentences begin with that say why they differ.
const MEMBERS: [(&str, &[&str]); 7] = [
    ("generations", &["generations of the LRU"]),
    ("cgroups", &["memory cgroups", "the memory cgroup", "tasks"]),
    ("fragmentation", &["types of page blocks", "fragmentation"]),
    ("stacks", &["page_owner"]),
    ("sites", &["allocation tags", "names of allocation tags"]),
    ("slab_users", &["slub_debug"]),
    ("kmemleak", &["kmemleak"]),
];

/// Returns what differs in the balance of a dump without a page and is not said to be missing there.
fn denied(whole: &Balance, lost: &Balance) -> Vec<String> {
    let said = |subjects: &[&str]| {
        let all = subjects.iter().chain(&["symbols", "modules"]);
        all.into_iter().any(|what| lost.missing.iter().any(|why| why.starts_with(what)))
    };
    // Pages whose struct pages are lost are in a row.
    let struct_pages = lost.pages(RowKind::Undecided) > whole.pages(RowKind::Undecided);
    let mut denied = Vec::new();
    // What walks do not find has no owner.
    for kind in RowKind::ALL.into_iter().filter(|kind| *kind != RowKind::NoOwner) {
        let pages = [whole, lost].map(|balance| balance.pages(kind).get());
        if pages[0] != pages[1] && !struct_pages && !said(subjects(kind)) {
            denied.push(format!(
                "{}: {} pages, then {}: {:?}",
                kind.name(),
                pages[0],
                pages[1],
                lost.missing
            ));
        }
    }
    let [a, b] = [whole, lost].map(|balance| serde_json::to_value(balance).unwrap());
    for (member, subjects) in MEMBERS {
        let is_absent = b.get(member).unwrap_or(&Value::Null).is_null();
        if a.get(member) != b.get(member) && (!struct_pages || is_absent) && !said(subjects) {
            denied.push(format!("{member}: {:?}", lost.missing));
        }
    }
    for check in &whole.identities {
        let is_made = lost.identities.iter().any(|it| it.what == check.what);
        if !is_made && lost.not_made.iter().all(|it| it.what != check.what) && !said(&[]) {
            denied.push(format!("the check of {} is not mentioned", check.what));
        }
    }
    denied
}

/// Loses each of at most `most` pages that a balance is made of, one at a time. Returns what was denied, and all balances.
fn lose_each_page(memory: &dyn PhysMemory, most: usize) -> (Vec<String>, Vec<Balance>) {
    let recorder = Recorder::new(memory);
    let whole = balance_of(&recorder).unwrap();
    let size = PageSize::KIB_4;
    let runs = recorder.runs(size).into_iter();
    let pages: Vec<u64> = runs
        .flat_map(|run| (run.start.start(size).get()..run.end.start(size).get()).step_by(PAGE as usize))
        .collect();
    let (mut found, mut balances) = (Vec::new(), Vec::new());
    for page in pages.iter().step_by(pages.len().div_ceil(most).max(1)) {
        let Some(lost) = balance_of(&Wrapped::through(WithoutPage(*page), memory)) else { continue };
        found.extend(denied(&whole, &lost).into_iter().map(|what| format!("without {page:#x}: {what}")));
        balances.push(lost);
    }
    (found, balances)
}

fn cgroups() -> Cgroups {
    let root = Cgroup {
        usage: 50,
        generations: true,
        max_seq: 3,
        ages: [7; 4],
        pages: vec![(0, 0, 0, 3)],
        ..Cgroup::default()
    };
    Cgroups {
        old: false,
        disabled: false,
        groups: vec![root.clone(), Cgroup { name: "web", usage: 20, ..root }],
    }
}

fn inside() -> Inside {
    let task = |pid: u32| Task {
        pid,
        comm: format!("task{pid}"),
        state: 1,
        ran: 9,
        stack: vec!["__schedule", "schedule", "kthread"],
        pages: Some(100),
    };
    let unmarked = Unmarked {
        rings: vec![(None, vec![0x3100, 0x3101, 0x3102]), (Some("slow"), vec![0x3110, 0x3111])],
        cma: vec![("first", 0x3200, 128, vec![0x3201, 0x3241])],
        sockets: vec![vec![0x3300, 0x3301], vec![0x3302]],
        io_uring: vec![vec![0x3400, 0x3401]],
    };
    let guest = Guest {
        shadows: vec![0x3500],
        tables: vec![(0x3510, 4, None), (0x3511, 3, Some(0x3510)), (0x3512, 2, Some(0x3511))],
        ..Guest::default()
    };
    Inside {
        tasks: (1..4).map(task).collect(),
        clock: 10,
        free: 8,
        on_lists: vec![0x3000, 0x3001],
        counters: [3, 6, 4, 0],
        caches: vec![("dentry", 4, 80)],
        areas: vec![("vmalloc", 65_536), ("module_alloc", 40_960)],
        modules: vec![("ext4", 1 << 20)],
        unmarked: Some(unmarked),
        guests: Some(vec![guest]),
        cgroups: Some(cgroups()),
        spread: true,
        ..Inside::default()
    }
}

fn vmcore(path: &Path, inside: &Inside) {
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, inside);
    machine.buddy(0x2008, 3).slab(0x2010, 2);
    for pfn in (0x3100..0x3112).chain(0x3201..0x3242).chain(0x3300..0x3303).chain(0x3400..0x3402) {
        machine.kernel(pfn);
    }
    for pfn in 0x3500..0x3513 {
        machine.kernel(pfn);
    }
    machine.build().elf().write(path).unwrap();
}

#[test]
fn what_a_lost_page_held_is_not_denied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    vmcore(&path, &inside());
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let whole = balance_of(source.memory()).unwrap();
    let rows = [RowKind::KvmTables, RowKind::RingBuffers, RowKind::Cma, RowKind::Sockets, RowKind::IoUring];
    assert_eq!(rows.map(|kind| whole.pages(kind).get()), [4, 5, 2, 3, 2]);
    let is_made = |what: &str| whole.not_made.iter().all(|it| it.what != what);
    assert!(whole.generations.is_some() && is_made("generations of the LRU"), "{:?}", whole.not_made);
    let (denied, balances) = lose_each_page(source.memory(), 2000);
    assert!(balances.len() > 20, "{}", balances.len());
    assert_eq!(denied, Vec::<String>::new(), "{} balances", balances.len());
    // Each kind of absence occurred, and says so.
    let says = |what: &str| balances.iter().any(|it| it.missing.iter().any(|why| why.starts_with(what)));
    for what in [
        "generations of the LRU: not checked: ",
        "memory cgroups: not checked: ",
        "page tables of KVM: not checked: ",
        "CMA: not checked: ",
        "ring buffers: not checked: ",
    ] {
        assert!(says(what), "{what}");
    }
    // Without any symbols, kinds that struct pages tell.
    let without = balances.iter().filter(|it| it.missing.iter().any(|why| why.starts_with("symbols: ")));
    let kinds = |it: &Balance| [RowKind::Free, RowKind::Slab].map(|kind| it.pages(kind).get());
    assert!(
        without.clone().count() > 0 && without.clone().all(|it| kinds(it) == kinds(&whole) && !it.is_whole)
    );
    assert!(balances.iter().any(|it| it.not_made.iter().any(|it| it.what == "generations of the LRU")));
}

/// `PAGEHAUL_DUMP` is a dump, `PAGEHAUL_ROUNDS` how many of the pages that its balance needs are lost, one at a time.
#[test]
#[ignore = "needs a dump of a real machine"]
fn what_a_lost_page_of_a_real_dump_held_is_not_denied() {
    let path = std::env::var("PAGEHAUL_DUMP").unwrap();
    let rounds = std::env::var("PAGEHAUL_ROUNDS").map_or(100, |text| text.parse().unwrap());
    let source = Source::open(Path::new(&path), MapPolicy::default()).unwrap();
    let (denied, balances) = lose_each_page(source.memory(), rounds);
    println!("{} balances", balances.len());
    assert_eq!(denied, Vec::<String>::new());
}
