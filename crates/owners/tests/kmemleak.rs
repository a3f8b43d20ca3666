//! Objects that kmemleak tracks: with stacks of both shapes, which of them are unreferenced, off, and damaged.

mod common;

use std::path::Path;

use common::balances;
use pagehaul_owners::{Balance, KmemleakUser, References};
use pagehaul_synth::{Depot, Era, Inside, Machine, Noise, Recorded, Tracked};

const LEAK: [&str; 4] = ["kmem_cache_alloc_noprof", "leak_one", "leak_init", "kthread"];
const KEPT: [&str; 3] = ["__kmalloc_noprof", "keep_all", "kthread"];

const ALLOCATED: u32 = 1;
const REPORTED: u32 = 2;

fn object(size: u64, stack: usize, count: i32, flags: u32) -> Tracked {
    let stack = Some(stack);
    Tracked { size, flags, min_count: 1, count, jiffies: 100, comm: "insmod", pid: 77, stack }
}

fn objects() -> Vec<Tracked> {
    let mut all = vec![object(64, 0, 0, ALLOCATED | REPORTED); 7];
    all.push(Tracked { comm: "bash", pid: 78, ..object(64, 0, 0, ALLOCATED | REPORTED) });
    // It has a pointer to it by now; no scan reported it; it is younger than 5 s; no scan looks for it; it is freed.
    all.push(object(64, 0, 1, ALLOCATED | REPORTED));
    all.push(object(64, 0, 0, ALLOCATED));
    all.push(Tracked { jiffies: 8_501, ..object(64, 0, 0, ALLOCATED | REPORTED) });
    all.push(Tracked { min_count: -1, ..object(64, 0, -1, ALLOCATED | REPORTED) });
    all.push(object(1 << 30, 0, 0, REPORTED));
    // As old as it must be.
    all.push(Tracked { jiffies: 8_500, ..object(8, 1, 0, ALLOCATED | REPORTED) });
    all.extend(vec![object(4096, 1, 1, ALLOCATED); 3]);
    all.push(Tracked { stack: None, ..object(100, 0, 1, ALLOCATED) });
    all
}

fn recorded(depot: Depot, kmemleak: Option<Vec<Tracked>>) -> Recorded {
    Recorded {
        owner: false,
        tags: false,
        compressed: false,
        depot,
        stacks: vec![LEAK.to_vec(), KEPT.to_vec()],
        pages: Vec::new(),
        early: Vec::new(),
        sites: Vec::new(),
        tagged: Vec::new(),
        kmemleak,
        scanned: 9_000,
    }
}

fn write(recorded: Recorded, path: &Path) {
    let inside = Inside { clock: 10, free: 8, recorded: Some(recorded), ..Inside::default() };
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside);
    machine.build().elf().write(path).unwrap();
}

fn of(path: &Path) -> Option<Balance> {
    balances(path, [(1, References::Never)]).map(|[balance]| balance)
}

fn built(recorded: Recorded) -> Balance {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    write(recorded, &path);
    of(&path).unwrap()
}

fn missing(balance: &Balance) -> Vec<&String> {
    balance.missing.iter().filter(|why| why.starts_with("kmemleak")).collect()
}

fn row(user: &KmemleakUser) -> (u64, u64, &str, Vec<&str>, usize) {
    let by = user.allocated_by.iter().map(String::as_str).collect();
    (user.objects, user.bytes, user.stack[1].as_str(), by, user.tasks)
}

#[test]
fn objects_have_stacks_and_tasks_and_those_without_references_are_told() {
    for depot in [Depot::V5_10, Depot::V6_1, Depot::V6_12, Depot::V6_18] {
        let balance = built(recorded(depot, Some(objects())));
        assert_eq!(missing(&balance), Vec::<&String>::new(), "{depot:?}");
        let found = balance.kmemleak.unwrap();
        assert_eq!((found.objects, found.bytes), (17, 12 * 64 + 8 + 3 * 4096 + 100), "{depot:?}");
        assert_eq!((found.unreferenced, found.unreferenced_bytes), (9, 8 * 64 + 8));
        assert_eq!((found.scanned, found.is_enabled, found.is_whole), (Some(10), true, true));
        assert_eq!((found.unrecorded, found.leak_count, found.count), (1, 2, 2));
        let leaks: Vec<_> = found.leaks.iter().map(row).collect();
        let expected =
            [(8, 512, "leak_one", vec!["insmod/77", "bash/78"], 2), (1, 8, "keep_all", vec!["insmod/77"], 1)];
        assert_eq!(leaks, expected, "{depot:?}");
        let all: Vec<_> = found.largest.iter().map(row).collect();
        let expected = [
            (4, 8 + 3 * 4096, "keep_all", vec!["insmod/77"], 1),
            (12, 768, "leak_one", vec!["insmod/77", "bash/78"], 2),
        ];
        assert_eq!(all, expected, "{depot:?}");
    }
}

#[test]
fn a_kernel_that_tracks_nothing_is_not_mentioned() {
    for off in [None, Some(Vec::new())] {
        let balance = built(recorded(Depot::V6_12, off));
        assert_eq!((&balance.kmemleak, missing(&balance)), (&None, Vec::new()));
    }
}

#[test]
fn without_a_scan_nothing_is_unreferenced() {
    let unscanned: Vec<Tracked> =
        objects().into_iter().map(|it| Tracked { flags: it.flags & ALLOCATED, ..it }).collect();
    let balance = built(Recorded { scanned: 0, ..recorded(Depot::V6_12, Some(unscanned)) });
    let found = balance.kmemleak.unwrap();
    assert_eq!((found.unreferenced, found.scanned, found.leaks.len()), (0, None, 0));
}

#[test]
fn a_broken_list_is_read_from_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    // A size that is nowhere else.
    let mut all = vec![object(0x1234_5678_9abc, 0, 1, ALLOCATED)];
    all.splice(0..0, vec![object(64, 0, 1, ALLOCATED); 3]);
    all.extend(vec![object(64, 0, 1, ALLOCATED); 5]);
    write(recorded(Depot::V6_12, Some(all)), &path);
    let whole = std::fs::read(&path).unwrap();
    let size = 0x1234_5678_9abc_u64.to_le_bytes();
    let at = whole.windows(8).position(|window| window == size).unwrap();
    // The list is 24 bytes before it: next, and prev.
    for from in [24, 16] {
        for wrong in [0xffff_0000_dead_0000_u64, 0] {
            let mut bytes = whole.clone();
            bytes[at - from..at - from + 8].copy_from_slice(&wrong.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let balance = of(&path).unwrap();
            let [why] = missing(&balance)[..] else { panic!("{:?}", balance.missing) };
            assert!(why.starts_with("kmemleak: the list of objects ends early: "), "{why}");
            let found = balance.kmemleak.unwrap();
            assert_eq!((found.objects, found.is_whole), (9, false), "{from}");
        }
    }
    // A list that meets itself, or others' memory.
    let mut bytes = whole.clone();
    let mut noise = Noise::new(3);
    for _ in 0..64 {
        let back = 8 * (1 + noise.next() % 40) as usize;
        let other = whole[at - 24 - back..at - 16 - back].to_vec();
        bytes[at - 24..at - 16].copy_from_slice(&other);
        std::fs::write(&path, &bytes).unwrap();
        assert!(of(&path).unwrap().kmemleak.is_none_or(|found| found.objects <= 9));
    }
}
