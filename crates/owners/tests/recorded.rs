//! Owners that the kernel recorded: `page_owner` with a stack depot of each shape, and allocation tags; exact sums, off, and damaged.

mod common;

use std::path::Path;

use common::balances;
use pagehaul_owners::{Balance, References, RowKind};
use pagehaul_synth::{Depot, Era, Inside, Kind, Machine, Noise, Recorded, Task};

const LEAK: [&str; 6] = [
    "get_page_from_freelist",
    "__alloc_pages_noprof",
    "leak_pages",
    "leak_init",
    "do_one_initcall",
    "kthread",
];
const LARGE: [&str; 5] =
    ["alloc_pages", "___kmalloc_large_node", "__kmalloc_noprof", "load_table", "kthread"];
const DRIVER: [&str; 3] = ["__alloc_pages_noprof", "ring_setup", "kthread"];

fn recorded(depot: Depot) -> Recorded {
    Recorded {
        owner: true,
        tags: true,
        compressed: false,
        depot,
        stacks: vec![LEAK.to_vec(), LARGE.to_vec(), DRIVER.to_vec()],
        pages: vec![
            (0x2000, 30, 0, "insmod", 77),
            (0x2020, 10, 0, "bash", 78),
            // A compound page of large kmalloc, and a driver's.
            (0x2040, 16, 1, "insmod", 77),
            (0x2080, 8, 2, "modprobe", 79),
            // Anonymous memory has another row.
            (0x2100, 3, 2, "init", 1),
        ],
        early: vec![(0x2200, 5)],
        sites: vec![
            ("mm/slub.c", 2422, "alloc_slab_page", 900_000, 200),
            ("drivers/x/ring.c", 12, "ring_alloc", 65_536, 4),
            ("net/core/skbuff.c", 9, "unused", 0, 0),
            ("leaky/leak.c", 33, "leak_one", 1_000_000, 250),
        ],
        tagged: vec![(0x2210, 1), (0x2211, 3)],
        kmemleak: None,
        scanned: 9_000,
    }
}

fn machine(recorded: Option<Recorded>) -> Machine {
    let inside = Inside {
        tasks: vec![Task {
            pid: 1,
            comm: "init".into(),
            state: 1,
            ran: 9,
            stack: vec!["__schedule", "schedule", "kthread"],
            pages: Some(100),
        }],
        clock: 10,
        free: 8,
        on_lists: vec![0x3000],
        // The slab counter has 4 pages of slabs and 16 of large kmalloc.
        counters: [3, 0, 20, 0],
        caches: vec![("dentry", 4, 80)],
        areas: vec![("vmalloc", 65_536)],
        recorded,
        ..Inside::default()
    };
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside);
    for pfn in (0x2000..0x2000 + 30).chain(0x2020..0x2020 + 10).chain(0x2200..0x2205).chain([0x2210, 0x2211])
    {
        machine.kernel(pfn);
    }
    machine.page(Kind::Compound, 0x2040, 4).page(Kind::Compound, 0x2080, 3);
    (0..3).for_each(|at| {
        machine.anon(0x2100 + at);
    });
    machine.buddy(0x2108, 3).slab(0x2110, 2).page(Kind::Reserved, 0x2118, 0);
    machine
}

fn of(path: &Path) -> Option<Balance> {
    let efforts = [(1, References::Never), (3, References::Never), (2, References::Always)];
    let [one, two, searched] = balances(path, efforts)?;
    assert_eq!(format!("{one:?}"), format!("{two:?}"), "the number of threads changes nothing");
    assert_eq!(searched.sum(), one.sum());
    let parts = |balance: &Balance| {
        balance.row(RowKind::NoOwner).map(|row| (row.pages, row.owners.iter().map(|owner| owner.pages).sum()))
    };
    if let Some((pages, owners)) =
        parts(&one).filter(|_| one.row(RowKind::NoOwner).is_some_and(|row| row.owner_count <= 100))
    {
        assert_eq!(pages, owners, "each page of the row has one owner");
    }
    if let Some((pages, owners)) =
        parts(&searched).filter(|_| searched.row(RowKind::NoOwner).is_some_and(|row| row.owner_count <= 100))
    {
        assert_eq!(pages, owners, "each page of the row has one owner, guesses too");
    }
    Some(one)
}

fn built(recorded: Option<Recorded>) -> Balance {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    machine(recorded).build().elf().write(&path).unwrap();
    of(&path).unwrap()
}

/// What is said of records of allocations.
fn missing(balance: &Balance) -> Vec<String> {
    let of_records = |why: &&String| why.contains("page_owner") || why.contains("allocation");
    balance.missing.iter().filter(of_records).cloned().collect()
}

/// The owner of a row whose name begins so: pages, tasks.
fn owner(balance: &Balance, kind: RowKind, name: &str) -> Option<(u64, Vec<String>)> {
    let owner = balance.row(kind)?.owners.iter().find(|owner| owner.name.starts_with(name))?;
    Some((owner.pages.get(), owner.allocation.clone().unwrap_or_default().allocated_by))
}

#[test]
fn pages_without_a_mark_have_the_stack_that_allocated_them() {
    let before = built(None);
    for depot in [Depot::V5_10, Depot::V6_1, Depot::V6_12, Depot::V6_18] {
        let found = built(Some(recorded(depot)));
        assert_eq!(missing(&found), Vec::<String>::new(), "{depot:?}");
        let tasks = |tasks: &[&str]| match depot {
            // It has no names of tasks.
            Depot::V5_10 => Vec::new(),
            _ => tasks.iter().map(|task| (*task).to_owned()).collect::<Vec<_>>(),
        };
        let leak = "allocated in leak_pages < leak_init < do_one_initcall < kthread";
        assert_eq!(
            owner(&found, RowKind::NoOwner, leak),
            Some((40, tasks(&["insmod/77", "bash/78"]))),
            "{depot:?}"
        );
        let large = "allocated in load_table < kthread";
        assert_eq!(owner(&found, RowKind::LargeKmalloc, large), Some((16, tasks(&["insmod/77"]))));
        assert_eq!(found.pages(RowKind::LargeKmalloc).get(), 16);
        let ring = "allocated in ring_setup < kthread";
        assert_eq!(owner(&found, RowKind::NoOwner, ring), Some((8, tasks(&["modprobe/79"]))));
        assert_eq!(found.pages(RowKind::Anonymous), before.pages(RowKind::Anonymous));
        // By their tags.
        let tagged = "allocated in ring_alloc, ring.c:12";
        assert_eq!(owner(&found, RowKind::NoOwner, tagged), Some((1, Vec::new())));
        let tagged = "allocated in leak_one [leaky], leak.c:33";
        assert_eq!(owner(&found, RowKind::NoOwner, tagged), Some((1, Vec::new())));
        let stacks = found.stacks.as_ref().unwrap();
        assert_eq!((stacks.allocated.get(), stacks.early.get(), stacks.count), (72, 5, 3));
        let largest: Vec<_> =
            stacks.largest.iter().map(|it| (it.pages.get(), it.stack[2].as_str())).collect();
        assert_eq!(largest, [(40, "leak_pages"), (16, "__kmalloc"), (11, "kthread")]);
        let check = found.identities.iter().find(|it| it.counter == "page_owner").unwrap();
        assert_eq!(check.counted, 72);
        // A culprit has a name.
        assert!(
            found
                .suspects
                .iter()
                .any(|suspect| suspect.name.as_deref() == Some(leak) && suspect.pages.get() == 40)
        );
    }
}

#[test]
fn places_of_allocations_are_those_of_all_cpus_and_modules() {
    let found = built(Some(recorded(Depot::V6_12)));
    let sites = found.sites.unwrap();
    assert_eq!((sites.bytes, sites.calls, sites.count), (1_965_536, 454, 3));
    let largest: Vec<_> = sites
        .largest
        .iter()
        .map(|it| (it.file.as_str(), it.line, it.function.as_str(), it.module.as_deref(), it.bytes, it.calls))
        .collect();
    let expected = [
        ("leaky/leak.c", 33, "leak_one", Some("leaky"), 1_000_000, 250),
        ("mm/slub.c", 2422, "alloc_slab_page", None, 900_000, 200),
        ("drivers/x/ring.c", 12, "ring_alloc", None, 65_536, 4),
    ];
    assert_eq!(largest, expected);
}

#[test]
fn what_a_kernel_does_not_keep_is_not_mentioned() {
    let off = Recorded {
        owner: false,
        tags: false,
        sites: Vec::new(),
        tagged: Vec::new(),
        ..recorded(Depot::V6_12)
    };
    for found in [built(None), built(Some(off))] {
        assert_eq!((&found.stacks, &found.sites), (&None, &None));
        assert_eq!(missing(&found), Vec::<String>::new());
        assert!(found.identities.iter().all(|it| it.counter != "page_owner"));
        assert!(owner(&found, RowKind::NoOwner, "single pages").unwrap().0 >= 40);
    }
    // Tags alone.
    let tags = built(Some(Recorded { owner: false, ..recorded(Depot::V6_12) }));
    assert!(tags.stacks.is_none() && tags.sites.is_some());
    assert_eq!(owner(&tags, RowKind::NoOwner, "allocated in ring_alloc").unwrap().0, 1);
}

/// `sysctl.vm.mem_profiling=1,compressed`.
#[test]
fn tags_in_flags_of_struct_pages_name_the_same_owners() {
    for owners in [false, true] {
        let plain = Recorded { owner: owners, ..recorded(Depot::V6_12) };
        let compressed = Recorded { compressed: true, ..plain.clone() };
        let [plain, compressed] = [plain, compressed].map(|recorded| built(Some(recorded)));
        assert_eq!(missing(&compressed), Vec::<String>::new());
        for place in ["allocated in ring_alloc", "allocated in leak_one [leaky]"] {
            let found = owner(&compressed, RowKind::NoOwner, place);
            assert_eq!(found.as_ref().map(|(pages, _)| *pages), Some(1), "{place}");
            assert_eq!(found, owner(&plain, RowKind::NoOwner, place), "{place}");
        }
        let rows =
            |balance: &Balance| balance.rows.iter().map(|row| (row.kind, row.pages)).collect::<Vec<_>>();
        assert_eq!(rows(&compressed), rows(&plain));
    }
}

#[test]
fn what_is_on_and_cannot_be_read_is_missing() {
    // No stack of 257 frames is believed.
    let long = vec![vec!["kthread"; 257]; 1];
    let pages = vec![(0x2000, 30, 0, "insmod", 77)];
    let found = built(Some(Recorded { stacks: long, pages, ..recorded(Depot::V6_1) }));
    assert!(
        found.missing.iter().any(|it| it.starts_with("page_owner: 1 stack cannot be read")),
        "{:?}",
        found.missing
    );
    assert!(found.missing.iter().any(|it| it.contains("claims 257 frames")), "{:?}", found.missing);
    assert_eq!(found.stacks.unwrap().unread.get(), 30);
}

/// Neither zero nor all, but at least what was read.
#[test]
fn pages_that_were_not_read_do_not_count_as_free() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    machine(Some(recorded(Depot::V6_12))).build().elf().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let (mut without, mut with_some) = (0, 0);
    for part in 20..100 {
        std::fs::write(&path, &whole[..whole.len() * part / 100]).unwrap();
        let Some(found) = of(&path) else { continue };
        let is_told = found.missing.iter().any(|why| why.starts_with("page_owner: "));
        match &found.stacks {
            None => {
                assert!(is_told, "{part}: {:?}", found.missing);
                assert!(found.identities.iter().all(|it| it.counter != "page_owner"));
                without += 1;
            }
            Some(stacks) if found.pages(RowKind::Undecided).get() > 0 => {
                assert!(is_told && stacks.allocated.get() > 0 && stacks.not_known.get() > 0);
                with_some += 1;
            }
            Some(_) => {}
        }
    }
    assert!(without + with_some > 0);
}

#[test]
fn damaged_records_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    machine(Some(recorded(Depot::V6_18))).build().elf().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut noise = Noise::new(7);
    let mut explained = 0;
    for _ in 0..8 {
        let mut bytes = whole.clone();
        for _ in 0..3000 {
            let at = (4096 + noise.next() as usize % (bytes.len() - 4104)) & !7;
            bytes[at..at + 8].copy_from_slice(&noise.next().to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        explained += usize::from(of(&path).is_some());
    }
    assert!(explained > 0, "some keep their symbols");
}
