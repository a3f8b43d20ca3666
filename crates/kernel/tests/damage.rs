//! Whatever is in the notes and in memory, nothing panics, hangs or allocates out of measure.

mod machine;

use machine::{Layout, Machine};
use pagehaul_kernel::{Hints, Kernel, PageClass, PageScanner, VmcoreInfo};
use pagehaul_physmem::PhysMemory;
use proptest::prelude::*;

fn scan_all(machine: &Machine) -> Vec<PageClass> {
    let Ok(kernel) = Kernel::discover(machine, Hints::default()) else { return Vec::new() };
    let mut classes = vec![PageClass::Absent; 3 << 15];
    let pages = kernel.pages_per_block().min(1 << 15);
    let mut other = vec![PageClass::Absent; pages];
    for block in [2, 0, 1] {
        let out = &mut classes[block << 15..][..pages];
        PageScanner::new(&kernel, machine.view()).scan(block as u64, out).unwrap();
        // The same again by a scanner that has seen another block.
        let mut scanner = PageScanner::new(&kernel, machine.view());
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
        era in 0usize..7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<i64>(), -4i64..130, Just(i64::MAX), Just(i64::MIN), Just(52), Just(34), Just(20),
        ]), 0..6),
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut machine = Machine::new(Layout::all()[era].clone(), 1);
        let mut lines: Vec<String> = machine.text.lines().map(str::to_owned).collect();
        for (index, value) in changes {
            let line = index.get_mut(&mut lines);
            let (key, _) = line.split_once('=').unwrap();
            *line = if key.starts_with("SYMBOL") { format!("{key}={value:x}") } else { format!("{key}={value}") };
        }
        for index in dropped {
            let index = index.index(lines.len());
            lines.remove(index);
        }
        machine.text = lines.join("\n");
        machine.compound(512, 9);
        machine.anon(7);
        machine.finish();
        scan_all(&machine);
    }

    #[test]
    fn memory_of_any_contents(era in 0usize..7, seed in any::<u64>(), rate in 1u64..20_000, words in any::<bool>()) {
        let mut machine = Machine::new(Layout::all()[era].clone(), 3);
        for pfn in (0..3 << 15).step_by(1024) {
            machine.anon(pfn);
            machine.compound(pfn, 9);
            machine.free(pfn + 512, 8);
            machine.hugetlb(pfn + 768, 4);
        }
        // Copies of words found elsewhere do more harm than noise does: they look right.
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let count = machine.memory.len() as u64 / 8;
        for _ in 0..rate {
            let (to, from) = (next() % count * 8, next() % count * 8);
            let value = if words { machine.get_u64(from) } else { next() };
            // All of memory, but above all the tables.
            let to = if next() % 4 == 0 { 0x10_0000 + to % 0x30_0000 } else { to };
            machine.put_u64(to, value);
        }
        machine.finish();
        scan_all(&machine);
    }

    #[test]
    fn struct_pages_of_noise(seed in any::<u64>(), era in 0usize..7, window in 1usize..5000) {
        let mut machine = Machine::new(Layout::all()[era].clone(), 3);
        let mut state = seed | 1;
        let (start, end) = (machine.at(0), machine.at(3 << 15));
        for at in (start..end).step_by(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Some words as they are in struct pages, so that more than the first test of each is reached.
            let value = match state % 5 {
                0 => state,
                1 => machine.vat(state >> 32 & 0x1ffff) | 1,
                2 => 1 << (state >> 58),
                3 => 0xffff_ffff_0000_0000 | state >> 60,
                _ => state >> 61,
            };
            machine.put_u64(at, value);
        }
        machine.window = window;
        machine.finish();
        scan_all(&machine);
    }
}
