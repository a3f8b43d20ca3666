//! Fuzz targets as functions, and the files and machines in memory that they share.

// Offsets and entries of tables are sums of shifted parts; ranges to be read are lists, of one here.
#![allow(clippy::precedence, clippy::single_range_in_vec_init)]

pub mod seeds;
pub mod targets;

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pagehaul_capture::{CaptureReport, Compression, Format, Limits, Options, Target, capture};
use pagehaul_codec::{Codec, Method};
use pagehaul_machine::{KernelMapping, PageSize, PhysAddr, VirtAddr};
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, PageState, PhysMemory, Piece, RangeMap, ReadError, View};
use pagehaul_run::Progress;
use pagehaul_synth::{
    Arm64, Cgroup, Cgroups, Depot, Era, Guest, Image, Inside, LOG_PAGES, Machine, Message, Recorded, Riscv64,
    Task, Tracked, Unmarked, note,
};
use pagehaul_vmcore::{Source, sweep};

/// A file in memory.
#[derive(Clone)]
pub struct MemoryFile(pub Arc<[u8]>);

/// Calls `read` with the path of a file of these bytes, in memory.
pub fn in_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    let file = temporary_file();
    std::fs::write(file.path(), bytes).expect("room for it");
    read(file.path());
}

/// Returns an empty file, in memory where the system allows.
fn temporary_file() -> tempfile::NamedTempFile {
    let directory = Some(Path::new("/dev/shm")).filter(|directory| directory.is_dir());
    tempfile::NamedTempFile::new_in(directory.unwrap_or(&std::env::temp_dir())).expect("a temporary file")
}

/// Writes a dump of `source`, at a level or with all of its pages, and reads it back: every page that it has is the
/// source's. `choice` selects format and codec. Returns `None` where the source is refused.
pub fn write_and_read_back(source: &Source, choice: u8, level: Option<u8>) -> Option<CaptureReport> {
    let formats = [Format::Kdump, Format::Elf, Format::Flattened, Format::FlattenedElf];
    let format = formats[usize::from(choice) % formats.len()];
    let codec = Codec::ALL[usize::from(choice >> 2) % Codec::ALL.len()];
    let output = temporary_file();
    let options = Options {
        level: level.unwrap_or(0).to_string().parse().expect("a dump level"),
        owners: None,
        keep_all: level.is_none(),
        checksums: false,
        compression: Compression::Fixed(Method::default_of(codec)),
        threads: 1,
        format,
        limits: Limits::default(),
    };
    let target = Target::File { path: output.path().to_owned(), overwrite: true };
    let report = capture(source, &target, &options, &Progress::default()).ok()?;
    let dump = match Source::open(output.path(), MapPolicy::default()) {
        Ok(dump) => dump,
        // Without a page there is no PT_LOAD.
        Err(_) if report.pages_written == 0 => return Some(report),
        Err(error) => panic!("{error}"),
    };
    assert!(!report.outcome.is_success() || dump.warnings().is_empty(), "{:?}", dump.warnings());
    let (is_elf, is_marked) =
        (matches!(format, Format::Elf | Format::FlattenedElf), !dump.warnings().is_empty());
    let (mut expected, mut pages, mut view) = ([0; PAGE_SIZE], 0, source.memory().view());
    let none: Option<()> = sweep::sweep(dump.memory(), 0..u64::MAX, 1, |batch| {
        for (pfn, _, bytes) in batch.pages().filter(|(_, state, _)| *state == PageState::Present) {
            match view.copy_page(PhysAddr::of_4k_page(pfn), &mut expected) {
                Ok(()) => pages += 1,
                // The segments of ELF are written before the pages: those that could not be read are holes of a dump that
                // is marked.
                Err(_) if is_elf && is_marked => expected = [0; PAGE_SIZE],
                Err(error) => panic!("PFN {pfn:#x}: {error}"),
            }
            assert!(bytes == expected, "PFN {pfn:#x}");
        }
        ControlFlow::Continue(())
    });
    assert_eq!(none, None);
    assert_eq!(pages, report.pages_written);
    Some(report)
}

impl MemoryFile {
    /// Returns a file of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl ReadAt for MemoryFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn path(&self) -> &Path {
        Path::new("fuzzed")
    }

    fn identity(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A file in the memory of a server: what is read is announced first.
pub struct ServerFile(pub MemoryFile);

impl ReadAt for ServerFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn identity(&self) -> (u64, u64) {
        self.0.identity()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// PFN of the kernel's log, which has [`LOG_PAGES`] pages.
pub const LOG_PFN: u64 = 0x800;

/// First PFN of section 0 whose struct page a [`Simulation`] may overlay.
pub const FIRST_PFN: u64 = 0x400;

/// First PFN of what [`Base::inspectable`] has to be inspected.
const INSIDE_PFN: u64 = 0xa00;

/// Layouts of the arm64 machines.
const LAYOUTS: [Arm64; 11] = [
    Arm64::V39,
    Arm64::V48,
    Arm64::V52,
    Arm64::V52_ON_48,
    Arm64::K16_V47,
    Arm64::K16_V52,
    Arm64::K16_V52_ON_47,
    Arm64::K64_V42,
    Arm64::K64_V48,
    Arm64::K64_V52,
    Arm64::K64_V52_ON_48,
];

type Page = [u8; PAGE_SIZE];

/// A small machine with a kernel of some era.
pub struct Base {
    /// The machine.
    pub image: Image,
    /// Pages of 4 KiB that a reader of the kernel may need, ascending.
    pub pfns: Vec<u64>,
    /// The first page whose struct page a [`Simulation`] may overlay.
    first_pfn: u64,
    /// The block of that page, and another one.
    blocks: [u64; 2],
    pages: HashMap<u64, Page>,
    ranges: RangeMap,
}

impl Base {
    /// Returns the machine of an era, built once: two sections of 4,096 pages, the kernel in the second.
    pub fn of(era: Era) -> &'static Base {
        static BASES: [OnceLock<Base>; Era::ALL.len()] = [const { OnceLock::new() }; Era::ALL.len()];
        BASES[era as usize].get_or_init(|| Self::build(&mut small_machine(era), 0..0))
    }

    /// Returns an arm64 machine, built once: two sections of 64 MiB from 1 GiB, the kernel in the first.
    fn of_layout(index: usize) -> &'static Base {
        const SECTION: u64 = 1 << 26;
        static BASES: [OnceLock<Base>; LAYOUTS.len()] = [const { OnceLock::new() }; LAYOUTS.len()];
        BASES[index].get_or_init(|| {
            let (layout, start) = (LAYOUTS[index], 16 * SECTION);
            let first_pfn = (start + SECTION) >> layout.page_shift;
            let mut machine = Machine::arm64(Era::V6_12, layout);
            machine.section_bits(26).max_physmem_bits(40).ram(start, start + 2 * SECTION).sampler(first_pfn);
            Self { first_pfn, blocks: [17, 16], ..Self::build(&mut machine, 0..0) }
        })
    }

    /// Returns a riscv64 machine, built once: two sections of 64 MiB from 2 GiB, the kernel in the first.
    fn riscv64(index: usize) -> &'static Base {
        const SECTION: u64 = 1 << 26;
        static BASES: [OnceLock<Base>; Riscv64::ALL.len()] = [const { OnceLock::new() }; Riscv64::ALL.len()];
        BASES[index].get_or_init(|| {
            let start = 32 * SECTION;
            let first_pfn = (start + SECTION) >> 12;
            let mut machine = Machine::riscv64(Era::V6_12, Riscv64::ALL[index]);
            machine.section_bits(26).max_physmem_bits(40).ram(start, start + 2 * SECTION).sampler(first_pfn);
            Self { first_pfn, blocks: [33, 32], ..Self::build(&mut machine, 0..0) }
        })
    }

    /// Returns such a machine with symbols, types, unwind tables, tasks and all else that a report is made of.
    pub fn inspectable() -> &'static Base {
        static BASE: OnceLock<Base> = OnceLock::new();
        BASE.get_or_init(|| {
            let mut machine = small_machine(Era::V6_12);
            let pages = machine.inside(INSIDE_PFN, &inside());
            Self::build(&mut machine, INSIDE_PFN..INSIDE_PFN + pages)
        })
    }

    fn build(machine: &mut Machine, more: Range<u64>) -> Self {
        let image = machine.build();
        let frames = (image.page_size() / PAGE_SIZE) as u64;
        let kernel = image.kernel_pfns();
        let kernel = kernel.start * frames..kernel.end * frames;
        let mut pfns: Vec<u64> = kernel.chain(LOG_PFN..LOG_PFN + LOG_PAGES).chain(more).collect();
        pfns.sort_unstable();
        let pages = pfns.iter().map(|&pfn| (pfn, image.page(pfn))).collect();
        pfns.retain(|&pfn| !image.is_zero(pfn));
        let ranges = RangeMap::new(image.ram().iter().map(|&(start, end)| Piece {
            start,
            end,
            stored: end - start,
            offset: start,
        }));
        Self { image, pfns, first_pfn: FIRST_PFN, blocks: [0, 1], pages, ranges }
    }
}

fn small_machine(era: Era) -> Machine {
    let mut machine = Machine::new(era);
    machine.section_bits(24).max_physmem_bits(40).ram(0x10_0000, 0x200_0000).sampler(FIRST_PFN);
    let text = "a message, not of one word only";
    let message = |at: u64| Message { nanoseconds: at * 1_000_000, level: 6, caller: 1, text };
    machine.log(LOG_PFN, &[message(1), message(2), message(3)]);
    machine
}

/// Tasks that run, sleep and wait; some of everything else.
fn inside() -> Inside {
    let task = |pid: u32, state, stack: &[&'static str]| Task {
        pid,
        comm: format!("task{pid}"),
        state,
        ran: 90,
        stack: stack.to_vec(),
        pages: (pid > 2).then_some(100),
    };
    let waits = ["__schedule", "io_schedule", "folio_wait_bit", "ext4_writepages", "do_fsync"];
    Inside {
        tasks: vec![
            task(1, 1, &["__schedule", "schedule", "do_nanosleep", "kthread"]),
            task(2, 0, &["kthread"]),
            task(20, 2, &waits),
            task(21, 2, &waits),
        ],
        clock: 100,
        free: 900,
        shmem: 200,
        on_lists: vec![0x1f00, 0x1f02, 0x1f01],
        counters: [10_000, 20_000, 3_000, 800],
        caches: vec![("dentry", 400, 8_400), ("bio-136", 4, 100)],
        areas: vec![("vmalloc", 65_536), ("module_alloc", 40_960)],
        backlog: 20_000,
        modules: vec![("ext4", 1 << 20), ("virtio_blk", 1 << 15)],
        recorded: Some(Recorded {
            owner: true,
            tags: true,
            compressed: false,
            depot: Depot::V6_12,
            stacks: vec![vec!["get_page_from_freelist", "kthread"], waits.to_vec()],
            pages: vec![(0x1f10, 4, 0, "task20", 20)],
            early: vec![(0x1f20, 1)],
            sites: vec![("mm/slub.c", 1, "alloc_slab_page", 4096, 1), ("ext4/x.c", 2, "ext4_fill", 8192, 2)],
            tagged: vec![(0x1f30, 1)],
            kmemleak: Some(vec![
                Tracked {
                    size: 64,
                    flags: 3,
                    min_count: 1,
                    comm: "task20",
                    pid: 20,
                    stack: Some(0),
                    ..Tracked::default()
                };
                3
            ]),
            scanned: 9000,
        }),
        unmarked: Some(Unmarked {
            rings: vec![(None, vec![0x1f40, 0x1f41, 0x1f42]), (Some("slow"), vec![0x1f43, 0x1f44])],
            cma: vec![("first", 0x1f80, 64, vec![0x1f81, 0x1f84])],
            sockets: vec![vec![0x1f48, 0x1f49], vec![]],
            io_uring: vec![vec![0x1f4c]],
        }),
        cgroups: Some(Cgroups {
            old: true,
            disabled: false,
            groups: ["", "a", "b"]
                .map(|name| Cgroup {
                    name,
                    usage: 40,
                    swap: 50,
                    generations: true,
                    max_seq: 5,
                    min_seq: [2, 3],
                    ages: [9, 8, 70, 60],
                    pages: vec![(0, 0, 0, 3), (2, 1, 1, 7)],
                    ..Cgroup::default()
                })
                .into(),
        }),
        guests: Some(vec![Guest {
            shadows: vec![0x1f50],
            tables: vec![(0x1f51, 3, None), (0x1f52, 2, Some(0x1f51)), (0x1f53, 1, Some(0x1f52))],
            entries: vec![(0x1f52, 0x1f54 << 12 | 7)],
        }]),
        spread: false,
    }
}

/// A machine with parts of its memory replaced by the fuzzer.
pub struct Simulation {
    base: &'static Base,
    notes: Vec<u8>,
    overlay: HashMap<u64, Page>,
    missing: HashSet<u64>,
}

impl Simulation {
    /// Returns an intact machine.
    pub fn new(era: Era) -> Self {
        Self::on(Base::of(era))
    }

    /// Returns an intact machine: of an era of x86_64, or of a layout of arm64 or riscv64.
    pub fn of_any_architecture(choice: u8) -> Self {
        let choice = usize::from(choice) % (Era::ALL.len() + LAYOUTS.len() + Riscv64::ALL.len());
        Self::on(match choice.checked_sub(Era::ALL.len()) {
            Some(layout) if layout < LAYOUTS.len() => Base::of_layout(layout),
            Some(layout) => Base::riscv64(layout - LAYOUTS.len()),
            None => Base::of(Era::ALL[choice]),
        })
    }

    /// Returns an intact arm64 machine with pages of 4 KiB and addresses of 52 bits.
    pub fn arm64() -> Self {
        Self::on(Base::of_layout(2))
    }

    /// The block whose struct pages [`with_struct_pages`](Self::with_struct_pages) overwrites, and another one.
    pub fn blocks(&self) -> [u64; 2] {
        self.base.blocks
    }

    /// Returns `base` intact.
    pub fn on(base: &'static Base) -> Self {
        let notes = base.image.notes().to_vec();
        Self { base, notes, overlay: HashMap::new(), missing: HashSet::new() }
    }

    /// Makes a page unreadable.
    pub fn without(mut self, pfn: u64) -> Self {
        self.missing.insert(pfn);
        self
    }

    /// The machine as it was.
    pub fn image(&self) -> &'static Image {
        &self.base.image
    }

    /// Replaces VMCOREINFO with `text`.
    pub fn with_vmcoreinfo(mut self, text: &[u8]) -> Self {
        self.notes = note("VMCOREINFO", 0, text);
        self
    }

    /// Overwrites memory at `paddr` with `bytes`.
    pub fn with_bytes(mut self, paddr: u64, bytes: &[u8]) -> Self {
        self.put(paddr, bytes);
        self
    }

    /// Overwrites struct pages with `bytes`: on x86_64 those from [`FIRST_PFN`].
    pub fn with_struct_pages(mut self, bytes: &[u8]) -> Self {
        let start = self.base.image.struct_page_paddr(self.base.first_pfn);
        self.put(start, bytes);
        self
    }

    fn put(&mut self, start: u64, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            let paddr = start + index as u64;
            let pfn = paddr / PAGE_SIZE as u64;
            let base = self.base;
            let page = self.overlay.entry(pfn).or_insert_with(|| base.image.page(pfn));
            page[paddr as usize % PAGE_SIZE] = byte;
        }
    }
}

impl PhysMemory for Simulation {
    fn ranges(&self) -> &RangeMap {
        &self.base.ranges
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        self.base.ranges.mark_pages(from.pfn(PageSize::KIB_4), PageSize::KIB_4, true, bits);
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(SimulationView(self))
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        let (vaddr, paddr) = self.base.image.text();
        Some(KernelMapping { vaddr: VirtAddr::new(vaddr), paddr: PhysAddr::new(paddr), size: 0x20_0000 })
    }
}

struct SimulationView<'a>(&'a Simulation);

impl View for SimulationView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        static ZEROS: Page = [0; PAGE_SIZE];
        self.0.base.ranges.find(paddr).ok_or(ReadError::NotPresent { paddr })?;
        let pfn = paddr / PAGE_SIZE as u64;
        if self.0.missing.contains(&pfn) {
            return Err(ReadError::NotInDump { paddr });
        }
        let page = self.0.overlay.get(&pfn).or_else(|| self.0.base.pages.get(&pfn)).unwrap_or(&ZEROS);
        let from = paddr as usize % PAGE_SIZE;
        Ok(&page[from..PAGE_SIZE.min(from + len)])
    }
}
