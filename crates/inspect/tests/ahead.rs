//! A report of a dump on a server: other threads read first, so that the report itself waits for next to nothing.

mod common;

use std::path::Path;

use common::task;
use pagehaul_inspect::{Machine, TriageReport};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_physmem::{MapPolicy, PhysMemory, Wrapped};
use pagehaul_synth::{Era, Inside, Machine as Synthetic};
use pagehaul_test_support::served::Served;
use pagehaul_vmcore::Source;

/// A machine with some of everything.
fn write(path: &Path) {
    let mut machine = Synthetic::new(Era::V6_12);
    let inside = Inside {
        tasks: vec![task(1, 1), task(20, 2), task(21, 2)],
        clock: 60,
        free: 100_000,
        caches: vec![("dentry", 400, 8_400)],
        areas: vec![("vmalloc", 65_536)],
        modules: vec![("ext4", 1 << 20)],
        ..Inside::default()
    };
    machine.inside(0x4000, &inside);
    machine.build().elf().write(path).unwrap();
}

#[test]
fn a_report_waits_for_nothing_that_other_threads_can_read_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    write(&path);
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let memory = source.memory();
    let served = Wrapped::through(Served::here(), memory);
    let report = |memory: &dyn PhysMemory| {
        let kernel = AddressSpace::discover(memory).unwrap();
        let virt = VirtualMemory::new(&kernel, memory);
        let machine = Machine::open(&kernel, &virt, memory.notes()).unwrap();
        served.wrap().forget();
        let report = TriageReport::read(&machine, Ok(&KernelLog::default()));
        serde_json::to_string(&report).unwrap()
    };
    let expected = report(memory);
    assert!(expected.contains("dentry") && expected.contains("task20"), "{expected}");
    assert_eq!(report(&served), expected);
    let waited = served.wrap().waited();
    assert!(waited.is_empty(), "{waited:x?}");
}
