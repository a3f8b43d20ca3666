//! Reports of a real dump in which words are changed: each ends, within a bound of work.

use std::path::Path;
use std::time::Duration;

use pagehaul_inspect::{Machine, TriageReport};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_machine::PageSize;
use pagehaul_physmem::{MapPolicy, PhysMemory, ReadError, Recorder, View, Wrap, Wrapped};
use pagehaul_vmcore::Source;

const PAGE: u64 = 4096;

/// Puts other words into memory: addresses in order, and the words there.
struct Damage(Vec<(u64, u64)>);

impl Wrap for Damage {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(DamagedView { view, words: &self.0, page: Vec::new() })
    }
}

struct DamagedView<'a> {
    view: Box<dyn View + 'a>,
    words: &'a [(u64, u64)],
    page: Vec<u8>,
}

impl View for DamagedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let len = len.min((PAGE - paddr % PAGE) as usize);
        let Self { view, words, page } = self;
        let piece = view.window(paddr, len)?;
        let end = paddr + piece.len() as u64;
        let first = words.partition_point(|(at, _)| at + 8 <= paddr);
        let mut inside = words[first..].iter().take_while(|(at, _)| *at < end).peekable();
        if inside.peek().is_none() {
            return Ok(piece);
        }
        page.clear();
        page.extend_from_slice(piece);
        for (at, word) in inside {
            for (index, byte) in (0..).zip(word.to_le_bytes()) {
                if let Some(place) = (at + index).checked_sub(paddr).and_then(|at| page.get_mut(at as usize))
                {
                    *place = byte;
                }
            }
        }
        Ok(page)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `PAGEHAUL_DUMP` is a dump, `PAGEHAUL_ROUNDS` how many reports are made of it, of which the slowest are printed. Words that a
/// report reads become others of them, which are pointers most of the time, or any numbers. `PAGEHAUL_SEED` repeats one report.
#[test]
#[ignore = "needs a dump of a real machine"]
fn reports_of_damaged_dumps_end_soon() {
    let path = std::env::var("PAGEHAUL_DUMP").unwrap();
    let rounds = std::env::var("PAGEHAUL_ROUNDS").map_or(100, |text| text.parse().unwrap());
    let source = Source::open(Path::new(&path), MapPolicy::default()).unwrap();
    let memory = source.memory();
    let kernel = AddressSpace::discover(memory).unwrap();
    let known = words(memory);
    println!("{} words", known.len());
    let report = |memory: &dyn PhysMemory| {
        let begin = processor_time();
        let virt = VirtualMemory::new(&kernel, memory);
        let tasks = Machine::open(&kernel, &virt, memory.notes()).map(|machine| {
            let report = TriageReport::new(&machine, KernelLog::read(memory).as_ref());
            report.tasks.all.len()
        });
        (processor_time() - begin, tasks.unwrap_or(0))
    };
    let (usual, tasks) = report(memory);
    println!("unchanged: {usual:?} for {tasks} tasks");
    let only: Option<u64> = std::env::var("PAGEHAUL_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut times = Vec::new();
    for seed in (1..=rounds).filter(|seed| only.is_none_or(|only| only == *seed)) {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let share = [1000, 100, 20][random.below(3)];
        let mut words: Vec<(u64, u64)> = Vec::new();
        let pointers_only = random.below(2) == 0;
        for (at, word) in &known {
            if random.below(share) != 0 || pointers_only && !is_pointer(*word) {
                continue;
            }
            let word = match random.below(8) {
                0 if !pointers_only => random.next(),
                1 if !pointers_only => random.below(1 << 16) as u64,
                _ => known[random.below(known.len())].1,
            };
            if !pointers_only || is_pointer(word) {
                words.push((*at, word));
            }
        }
        let (time, tasks) = report(&Wrapped::through(Damage(words), memory));
        println!("seed {seed}: {time:?}, 1 of {share}, {tasks} tasks");
        times.push((time, seed, share, tasks));
    }
    times.sort();
    for (time, seed, share, tasks) in times.iter().rev().take(12) {
        println!("seed {seed}: {time:?}, 1 of {share} words changed, {tasks} tasks");
    }
}

/// Whether a word is an address of the kernel, as those of x86_64 are.
fn is_pointer(word: u64) -> bool {
    word >> 47 == 0x1_ffff
}

/// Returns the words in pages that a report reads, except zeros: their physical addresses and themselves.
fn words(memory: &dyn PhysMemory) -> Vec<(u64, u64)> {
    let recorder = Recorder::new(memory);
    let kernel = AddressSpace::discover(&recorder).unwrap();
    let virt = VirtualMemory::new(&kernel, &recorder);
    let machine = Machine::open(&kernel, &virt, memory.notes()).unwrap();
    TriageReport::new(&machine, KernelLog::read(memory).as_ref());
    let (mut view, mut found) = (memory.view(), Vec::new());
    let size = PageSize::KIB_4;
    for page in recorder
        .runs(size)
        .into_iter()
        .flat_map(|run| (run.start.start(size).get()..run.end.start(size).get()).step_by(PAGE as usize))
    {
        let mut bytes = [0; PAGE as usize];
        if view.read(page, &mut bytes).is_ok() {
            let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            found.extend((page..).step_by(8).zip(words).filter(|(_, word)| *word != 0));
        }
    }
    found
}
