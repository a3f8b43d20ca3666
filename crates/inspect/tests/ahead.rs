//! A report of a dump on a server: other threads read first, so that the report itself waits for next to nothing.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use pagehaul_inspect::{Machine, Report};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_physmem::{MapPolicy, PhysMemory, ReadError, View, Wrap, Wrapped};
use pagehaul_synth::{Era, Inside, Machine as Synthetic, Task};
use pagehaul_vmcore::Source;

const PAGE_SHIFT: u32 = 12;

/// Says that memory is on a server.
struct Served {
    reader: ThreadId,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// Pages that were announced or read.
    here: BTreeSet<u64>,
    /// Pages that the reader needed before.
    waited: BTreeSet<u64>,
}

impl Wrap for Served {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(ServedView { served: self, view })
    }
}

struct ServedView<'a> {
    served: &'a Served,
    view: Box<dyn View + 'a>,
}

impl View for ServedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let mut pages = self.served.pages.lock().unwrap();
        let page = paddr >> PAGE_SHIFT;
        if pages.here.insert(page) && thread::current().id() == self.served.reader {
            pages.waited.insert(page);
        }
        self.view.window(paddr, len)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        let pages =
            ranges.iter().flat_map(|range| range.start >> PAGE_SHIFT..range.end.div_ceil(1 << PAGE_SHIFT));
        self.served.pages.lock().unwrap().here.extend(pages);
    }
}

/// A machine with some of everything.
fn write(path: &Path) {
    let task = |pid, state| Task {
        pid,
        comm: format!("task{pid}"),
        state,
        ran: 1,
        stack: vec!["__schedule", "schedule", "io_schedule"],
        pages: Some(100),
    };
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
    let served = Served { reader: thread::current().id(), pages: Mutex::default() };
    let served = Wrapped::through(served, memory);
    let report = |memory: &dyn PhysMemory| {
        let kernel = AddressSpace::discover(memory).unwrap();
        let virt = VirtualMemory::new(&kernel, memory);
        let machine = Machine::open(&kernel, &virt, memory.notes()).unwrap();
        served.wrap().pages.lock().unwrap().waited.clear();
        let report = Report::read(&machine, Ok(&KernelLog::default()));
        serde_json::to_string(&report).unwrap()
    };
    let expected = report(memory);
    assert!(expected.contains("dentry") && expected.contains("task20"), "{expected}");
    assert_eq!(report(&served), expected);
    let waited = &served.wrap().pages.lock().unwrap().waited;
    assert!(waited.is_empty(), "{waited:x?}");
}
