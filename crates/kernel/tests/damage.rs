//! Whatever is in the notes and in memory, nothing panics, hangs or allocates out of measure.

mod machine;

use machine::{KernelMemory, SECTION_PAGES, machine};
use pagehaul_kernel::{Kernel, PageClass, PageScanner, VmcoreInfo};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::Era;
use proptest::prelude::*;

fn scan_all(memory: &KernelMemory) -> Vec<PageClass> {
    let Ok(kernel) = Kernel::discover(memory) else { return Vec::new() };
    let mut classes = vec![PageClass::Absent; 3 << 15];
    let pages = kernel.pages_per_block().min(1 << 15);
    let mut other = vec![PageClass::Absent; pages];
    for block in [2, 0, 1] {
        let out = &mut classes[block << 15..][..pages];
        PageScanner::new(&kernel, memory.view()).scan(block as u64, out).unwrap();
        // The same again by a scanner that has seen another block.
        let mut scanner = PageScanner::new(&kernel, memory.view());
        scanner.scan((block as u64 + 1) % 3, &mut other).unwrap();
        scanner.scan(block as u64, &mut other).unwrap();
        assert_eq!(other, *out);
    }
    classes
}

proptest! {
    #[test]
    fn vmcoreinfo_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let info = VmcoreInfo::parse(&bytes);
        for (key, value) in info.iter() {
            prop_assert_eq!(info.get(key), Some(value));
        }
        info.number("PG_lru");
        info.symbol("mem_section");
    }

    #[test]
    fn numbers_come_back(number in any::<i64>(), address in any::<u64>()) {
        let text = format!("NUMBER(a)={number}\nNUMBER(b)={address:#x}\nSYMBOL(c)={address:x}\nNUMBER(d)={address}\n");
        let info = VmcoreInfo::parse(text.as_bytes());
        prop_assert_eq!(info.number("a"), Some(number));
        prop_assert_eq!(info.number("b"), Some(address as i64));
        prop_assert_eq!(info.symbol("c"), Some(address));
        prop_assert_eq!(info.number("d"), Some(address as i64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn keys_of_any_value(
        era in prop::sample::select(&Era::ALL[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<i64>(), -4i64..130, Just(i64::MAX), Just(i64::MIN), Just(52), Just(34), Just(20),
        ]), 0..6),
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut memory = KernelMemory::of(machine(era, 1).compound(512, 9).anon(7));
        let mut lines: Vec<String> = memory.text.lines().map(str::to_owned).collect();
        for (index, value) in changes {
            let line = index.get_mut(&mut lines);
            let (key, _) = line.split_once('=').unwrap();
            *line = if key.starts_with("SYMBOL") { format!("{key}={value:x}") } else { format!("{key}={value}") };
        }
        for index in dropped {
            let index = index.index(lines.len());
            lines.remove(index);
        }
        memory.text = lines.join("\n");
        memory.finish();
        scan_all(&memory);
    }

    #[test]
    fn memory_of_any_contents(
        era in prop::sample::select(&Era::ALL[..]),
        seed in any::<u64>(),
        rate in 1u64..20_000,
        words in any::<bool>(),
    ) {
        let mut machine = machine(era, 3);
        for pfn in (0..3 * SECTION_PAGES).step_by(1024) {
            let machine = if pfn % 2048 == 0 { machine.anon_thp(pfn) } else { machine.hugetlb(pfn, 9) };
            machine.buddy(pfn + 512, 8).compound(pfn + 768, 4);
        }
        let mut memory = KernelMemory::of(&machine);
        // Copies of words found elsewhere do more harm than noise does: they look right.
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        // All of memory, but above all the kernel's tables: in its image, and behind its struct pages.
        let start = memory.ranges().end() - memory.memory.len() as u64;
        let bytes = memory.memory.len() as u64;
        let tables = memory.at(4 * SECTION_PAGES - 1) + 64 - start;
        for _ in 0..rate {
            let from = next() % (bytes / 8) * 8;
            let value = if words { memory.get_u64(start + from) } else { next() };
            let to = next() % (bytes / 8) * 8;
            let to = match next() % 8 {
                0 => 0x10_0000 + to % 0x2_0000,
                1 => tables + to % (bytes - tables),
                _ => to,
            };
            memory.put_u64(start + to, value);
        }
        memory.finish();
        scan_all(&memory);
    }

    #[test]
    fn struct_pages_of_noise(
        seed in any::<u64>(),
        era in prop::sample::select(&Era::ALL[..]),
        window in 1usize..5000,
    ) {
        let mut memory = KernelMemory::of(&machine(era, 3));
        let mut state = seed | 1;
        let (start, end) = (memory.at(0), memory.at(3 * SECTION_PAGES));
        for at in (start..end).step_by(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Some words as they are in struct pages, so that more than the first test of each is reached.
            let value = match state % 5 {
                0 => state,
                1 => memory.vat(state >> 32 & 0x1ffff) | 1,
                2 => 1 << (state >> 58),
                3 => 0xffff_ffff_0000_0000 | state >> 60,
                _ => state >> 61,
            };
            memory.put_u64(at, value);
        }
        memory.window = window;
        memory.finish();
        scan_all(&memory);
    }
}
