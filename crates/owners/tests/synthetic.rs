//! The balance of synthetic machines: every page in one row, on pages of 4, 16 and 64 KiB, and on damaged memory.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::balances;
use pagehaul_inspect::Machine as CrashedMachine;
use pagehaul_kernel::{Kernel, VirtualMemory};
use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Balance, Effort, References, RowKind, balance};
use pagehaul_physmem::{MapPolicy, PhysMemory, Wrapped};
use pagehaul_synth::{Arm64, Era, Guest, Inside, Kind, Machine, Noise, Task, Unmarked};
use pagehaul_test_support::served::Served;
use pagehaul_vmcore::Source;

fn inside() -> Inside {
    let stack = vec!["__schedule", "schedule", "kthread"];
    Inside {
        tasks: vec![Task { pid: 1, comm: "init".into(), state: 1, ran: 9, stack, pages: Some(100) }],
        clock: 10,
        free: 8,
        on_lists: vec![0x3000, 0x3001],
        counters: [3, 0, 4, 0],
        caches: vec![("dentry", 4, 80)],
        areas: vec![("vmalloc", 65_536)],
        ..Inside::default()
    }
}

/// Returns the balance of the vmcore at `path`, and the number of pages that have a struct page.
fn of(path: &Path) -> Option<Balance> {
    let [one, two] = balances(path, [1, 3].map(|threads| (threads, References::Always)))?;
    assert_eq!(format!("{one:?}"), format!("{two:?}"), "the number of threads changes nothing");
    Some(one)
}

fn blocks(machine: &mut Machine, first: u64) {
    for at in 0..3 {
        machine.anon(first + at);
    }
    machine.buddy(first + 8, 3).slab(first + 16, 2).page(Kind::Reserved, first + 24, 0);
}

/// Writes a vmcore with pages of many owners.
fn vmcore(directory: &Path) -> PathBuf {
    let path = directory.join("vmcore");
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside());
    blocks(&mut machine, 0x2000);
    machine.build().elf().write(&path).unwrap();
    path
}

#[test]
fn each_page_is_in_one_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = vmcore(directory.path());
    let found = of(&path).unwrap();
    assert_eq!(found.page_size, PageSize::KIB_4);
    assert_eq!(found.pages(RowKind::Anonymous).get(), 3);
    assert_eq!(found.pages(RowKind::Free).get(), 8);
    assert_eq!(found.pages(RowKind::Slab).get(), 4);
    assert_eq!(found.pages(RowKind::PerCpuLists).get(), 2);
    let reserved: PageCount = found.outside.iter().map(|outside| outside.pages).sum();
    // Two sections have struct pages.
    assert_eq!((found.sum() + reserved).get(), 2 << 15);
    // The kernel's zone claims 2^18 pages: the report notices.
    let all = &found.identities[0];
    assert_eq!((all.what, all.pages as u64, all.counted), ("all rows", found.sum().get(), 1 << 18));
    assert!(!all.holds());
    assert!(found.identities.iter().any(|it| it.what == "free, per-CPU lists" && it.holds()));
}

/// Returns the owners of a row with their pages.
fn owners(balance: &Balance, kind: RowKind) -> Vec<(&str, u64)> {
    let owners = balance.row(kind).into_iter().flat_map(|row| &row.owners);
    owners.map(|owner| (owner.name.as_str(), owner.pages.get())).collect()
}

#[test]
fn pages_without_a_mark_have_the_owner_that_leads_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let unmarked = Unmarked {
        rings: vec![(None, vec![0x3100, 0x3101, 0x3102]), (Some("slow"), vec![0x3110, 0x3111])],
        cma: vec![("first", 0x3200, 128, vec![0x3201, 0x3241]), ("second", 0x3280, 64, vec![0x32bf])],
        sockets: vec![vec![0x3300, 0x3301], vec![0x3302], vec![]],
        io_uring: vec![vec![0x3400, 0x3401]],
    };
    let with = |unmarked| {
        let mut machine = Machine::new(Era::V6_12);
        machine.inside(0x4000, &Inside { unmarked, ..inside() });
        blocks(&mut machine, 0x2000);
        // What pages say of themselves comes first: one was lent to a process.
        for pfn in (0x3100..0x3420).filter(|pfn| *pfn != 0x3241) {
            machine.kernel(pfn);
        }
        machine.anon(0x3241);
        machine.build().elf().write(&path).unwrap();
        of(&path).unwrap()
    };
    let found = with(Some(unmarked));
    assert_eq!(owners(&found, RowKind::RingBuffers), [("tracefs", 3), ("tracefs instances/slow", 2)]);
    assert_eq!(owners(&found, RowKind::Cma), [("first", 1), ("second", 1)]);
    assert_eq!(owners(&found, RowKind::Sockets), [("init/1", 3)]);
    assert_eq!(owners(&found, RowKind::IoUring), [("init/1", 2)]);
    // A kernel without them.
    let without = with(None);
    let is_of_walks =
        |why: &&String| ["ring buffers", "CMA", "sockets"].iter().any(|what| why.contains(what));
    assert_eq!(found.missing.iter().chain(&without.missing).find(is_of_walks), None);
    // The other has no member for files.
    assert!(!found.missing.iter().any(|why| why.contains("open files")), "{:?}", found.missing);
    let rows = [RowKind::RingBuffers, RowKind::Cma, RowKind::Sockets, RowKind::IoUring];
    assert_eq!(rows.map(|kind| without.pages(kind).get()), [0; 4]);
    assert_eq!(without.sum(), found.sum());
}

#[test]
fn of_lists_that_a_cpu_was_changing_the_number_of_pages_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let with = |on_lists: Vec<u64>| {
        let mut machine = Machine::new(Era::V6_12);
        machine.inside(0x4000, &Inside { on_lists, ..inside() });
        blocks(&mut machine, 0x2000);
        machine.build().elf().write(&path).unwrap();
        of(&path).unwrap()
    };
    let owned =
        |found: &Balance| [RowKind::PerCpuLists, RowKind::NoOwner].map(|kind| found.pages(kind).get());
    let still = with(vec![0x3000, 0x3001, 0x3002]);
    // A page that is on the list twice, as its links have it.
    let changing = with(vec![0x3000, 0x3001, 0x3000]);
    assert_eq!(owned(&still)[0], 3);
    assert_eq!(owned(&changing), owned(&still));
    let said =
        |found: &Balance| found.missing.iter().any(|why| why.contains("how many pages they have is known"));
    assert!(said(&changing), "{:?}", changing.missing);
    // One outside of the zone: the kernel never has that.
    let damaged = with(vec![0x3000, 0x6100]);
    assert_eq!(owned(&damaged)[0], 0);
    assert!(!said(&damaged), "{:?}", damaged.missing);
}

#[test]
fn the_balance_of_a_dump_on_a_server_waits_for_nothing_that_other_threads_can_read_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = vmcore(directory.path());
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let served = Wrapped::through(Served::here(), source.memory());
    let of = |memory: &dyn PhysMemory| {
        let kernel = Kernel::discover(memory).unwrap();
        let virtual_memory = VirtualMemory::new(kernel.space(), memory);
        let machine = CrashedMachine::open(kernel.space(), &virtual_memory, memory.notes()).unwrap();
        served.wrap().forget();
        let effort = Effort { threads: 1, references: References::Above(100) };
        format!("{:?}", balance(&machine, &kernel, memory, effort).unwrap())
    };
    assert_eq!(of(&served), of(source.memory()));
    let waited = served.wrap().waited();
    assert!(waited.is_empty(), "{waited:x?}");
}

#[test]
fn pages_of_16_and_64_kib() {
    for (page_shift, bits) in [(14, 47), (16, 48)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        let layout = Arm64 { page_shift, va_bits: bits, used_bits: bits, contiguous: false };
        let mut machine = Machine::arm64(Era::V6_12, layout);
        let first = (0x4400_0000 >> page_shift) as u64;
        machine.inside(first, &Inside { on_lists: Vec::new(), ..inside() });
        blocks(&mut machine, first + 0x100);
        machine.build().elf().write(&path).unwrap();
        let Some(found) = of(&path) else { panic!("pages of {} bytes", 1 << page_shift) };
        assert_eq!(found.page_size.bytes(), 1 << page_shift);
        assert_eq!(found.pages(RowKind::Anonymous).get(), 3);
        assert_eq!(found.pages(RowKind::Free).get(), 8);
    }
}

#[test]
fn damaged_memory_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside());
    machine.populate(0x1800, 0x1000, 5);
    machine.build().elf().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut noise = Noise::new(3);
    let mut explained = 0;
    for _ in 0..8 {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&whole, 0).unwrap();
        for _ in 0..2000 {
            let at = 4096 + noise.next() % (whole.len() as u64 - 4104);
            file.write_all_at(&noise.next().to_le_bytes(), at & !7).unwrap();
        }
        explained += usize::from(of(&path).is_some());
    }
    assert!(explained > 0, "some keep their symbols");
}

#[test]
fn page_tables_of_guests_are_those_that_their_roots_and_lists_lead_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    // Three tables below a root, one twice; tables of shadow paging; a table that nothing leads to.
    let first = Guest {
        shadows: vec![0x3500, 0x3501],
        tables: vec![
            (0x3510, 4, None),
            (0x3511, 3, Some(0x3510)),
            (0x3512, 2, Some(0x3511)),
            (0x3513, 1, Some(0x3512)),
            (0x3513, 1, Some(0x3512)),
        ],
        // A page of the guest, a large page, one of another guest's tables below a last level, pages that do not exist.
        entries: vec![
            (0x3513, 0x3600 << 12 | 7),
            (0x3512, 0x3521 << 12 | 0x87),
            (0x3512, 0x2_0000_0000 << 12 | 7),
            (0x3513, 0x3530 << 12 | 7),
            (0x3511, 0x3601 << 12 | 7),
            (0x3510, 1 << 63),
        ],
    };
    let second = Guest { tables: vec![(0x3520, 4, None), (0x3521, 3, Some(0x3520))], ..Guest::default() };
    let with = |guests| {
        let mut machine = Machine::new(Era::V6_12);
        machine.inside(0x4000, &Inside { guests, ..inside() });
        blocks(&mut machine, 0x2000);
        for pfn in 0x3500..0x3610 {
            machine.kernel(pfn);
        }
        machine.build().elf().write(&path).unwrap();
        of(&path).unwrap()
    };
    let found = with(Some(vec![first, second]));
    assert_eq!(owners(&found, RowKind::KvmTables), [("init/1", 8)]);
    let without = with(Some(Vec::new()));
    assert_eq!(without.pages(RowKind::KvmTables).get(), 0);
    assert_eq!(without.sum(), found.sum());
    assert_eq!(with(None).pages(RowKind::NoOwner), without.pages(RowKind::NoOwner));
    let said = |found: &Balance| found.missing.iter().any(|why| why.contains("KVM"));
    assert!(!said(&found) && !said(&without), "{:?}", found.missing);
}

#[test]
fn fragments_of_packets_have_the_block_that_they_are_a_part_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    // The head of one block, the third page of another, and a single page.
    let sockets = vec![vec![0x3310], vec![0x3322, 0x3330]];
    let mut machine = Machine::new(Era::V6_12);
    machine
        .inside(0x4000, &Inside { unmarked: Some(Unmarked { sockets, ..Unmarked::default() }), ..inside() });
    blocks(&mut machine, 0x2000);
    machine.page(Kind::Compound, 0x3310, 2).page(Kind::Compound, 0x3320, 3).kernel(0x3330);
    machine.build().elf().write(&path).unwrap();
    let found = of(&path).unwrap();
    assert_eq!(owners(&found, RowKind::Sockets), [("init/1", 4 + 8 + 1)]);
}
