//! Every layout of kallsyms, with VMCOREINFO's addresses and by search, and damaged.

use pagehaul_kernel::{ReadVirtual, TranslateError, VmcoreInfo};
use pagehaul_symbols::{Encoding, Kallsyms, Symbols};
use proptest::prelude::*;

const STEXT: u64 = 0xffff_ffff_8100_0000;
/// Where the tables start, as `.rodata` does behind the text.
const TABLES: usize = 0x1000;
const COUNT: usize = 2000;

struct Memory(Vec<u8>);

impl ReadVirtual for Memory {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let start = vaddr.checked_sub(STEXT).ok_or(TranslateError::NotCanonical { vaddr })? as usize;
        let bytes = self.0.get(start..start + buf.len()).ok_or(TranslateError::NotCanonical { vaddr })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// Number of the symbol that ends the image.
const END: u64 = COUNT as u64 - 3;
/// Bytes from the image to the last symbol, as on x86_64, where modules are between them.
const FAR: u64 = 1 << 30;

/// Symbols of the made-up kernel: address, name with its letter.
fn symbols() -> Vec<(u64, String)> {
    const LAST: u64 = COUNT as u64 - 1;
    (0..COUNT as u64)
        .map(|number| match number {
            0 => (STEXT, "T_stext".into()),
            // Longer than 127 tokens.
            7 => (STEXT + 7 * 32, format!("t{}", "long_name_".repeat(20))),
            END => (STEXT + END * 32, "B_end".into()),
            LAST => (STEXT + FAR, "tlast".into()),
            _ => (STEXT + number * 32, format!("tsymbol_{number}")),
        })
        .collect()
}

/// A kernel image, and its VMCOREINFO.
struct Image {
    bytes: Vec<u8>,
    keys: String,
    align: usize,
}

impl Image {
    fn place(&mut self, name: &str, content: &[u8]) {
        self.align(self.align);
        let at = STEXT + self.bytes.len() as u64;
        self.keys += &format!("SYMBOL(kallsyms_{name})={at:x}\n");
        self.bytes.extend_from_slice(content);
    }

    fn align(&mut self, align: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
    }

    fn place_addresses(&mut self, encoding: Encoding) {
        self.align(self.align);
        let start = STEXT + self.bytes.len() as u64;
        let word = |(number, (address, _)): (usize, (u64, String))| match encoding {
            Encoding::Absolute => address.to_le_bytes().to_vec(),
            Encoding::AbsolutePerCpu => {
                (STEXT.wrapping_sub(1).wrapping_sub(address) as u32).to_le_bytes().to_vec()
            }
            Encoding::Relative => ((address - STEXT) as u32).to_le_bytes().to_vec(),
            Encoding::PlaceRelative => {
                (address.wrapping_sub(start + 4 * number as u64) as u32).to_le_bytes().to_vec()
            }
        };
        let column: Vec<u8> = symbols().into_iter().enumerate().flat_map(word).collect();
        self.place(if encoding == Encoding::Absolute { "addresses" } else { "offsets" }, &column);
        if matches!(encoding, Encoding::AbsolutePerCpu | Encoding::Relative) {
            self.align(8);
            self.place("relative_base", &STEXT.to_le_bytes());
        }
    }
}

/// An image with the tables of a release, and its VMCOREINFO.
fn image(encoding: Encoding, addresses_last: bool, align: usize) -> (Memory, String) {
    let keys = format!("SYMBOL(_stext)={STEXT:x}\n");
    let mut image = Image { bytes: vec![0; TABLES], keys, align };
    let mut names = Vec::new();
    let mut markers = Vec::new();
    for (number, (_, name)) in symbols().iter().enumerate() {
        if number % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        match name.len() {
            short @ 0..128 => names.push(short as u8),
            long => names.extend([long as u8 & 0x7f | 0x80, (long >> 7) as u8]),
        }
        names.extend(name.bytes());
    }
    let mut table = Vec::new();
    let mut index = Vec::new();
    for token in 0..=255_u8 {
        index.extend((table.len() as u16).to_le_bytes());
        match token {
            b'!'..=b'~' => table.push(token),
            _ => table.extend(format!("<{token}>").bytes()),
        }
        table.push(0);
    }
    if !addresses_last {
        image.place_addresses(encoding);
    }
    image.place("num_syms", &(COUNT as u32).to_le_bytes());
    image.place("names", &names);
    image.place("markers", &markers);
    image.place("token_table", &table);
    image.place("token_index", &index);
    if addresses_last {
        image.place_addresses(encoding);
    }
    image.bytes.resize(image.bytes.len() + 0x40000, 0);
    (Memory(image.bytes), image.keys)
}

/// From 4.6, 6.4, 6.15, 7.0, and without CONFIG_KALLSYMS_BASE_RELATIVE.
const LAYOUTS: [(Encoding, bool, usize); 5] = [
    (Encoding::AbsolutePerCpu, false, 8),
    (Encoding::AbsolutePerCpu, true, 8),
    (Encoding::Relative, true, 8),
    (Encoding::PlaceRelative, true, 4),
    (Encoding::Absolute, false, 8),
];

fn check(found: &Kallsyms, encoding: Encoding) {
    assert_eq!(found.encoding(), encoding);
    assert_eq!(found.len(), COUNT);
    for (address, name) in symbols() {
        let name = &name[1..];
        assert_eq!(found.address(name), Some(address), "{name}");
        assert_eq!(
            found.containing(address + 31).map(|(start, _, name)| (start, name)),
            Some((address, name.into()))
        );
    }
    assert_eq!(found.address("nothing"), None);
}

#[test]
fn nothing_behind_the_image_has_a_name() {
    let (encoding, addresses_last, align) = LAYOUTS[0];
    let (memory, keys) = image(encoding, addresses_last, align);
    let found = Kallsyms::read(&VmcoreInfo::parse(keys.as_bytes()), &memory).unwrap();
    assert_eq!(found.address("_end"), Some(STEXT + END * 32));
    let names = Symbols::new(found);
    let name = |address| names.name(address).map(|name| name.symbol);
    assert_eq!(name(STEXT + END * 32 - 1), Some(format!("symbol_{}", END - 1)));
    for behind in [END * 32, END * 32 + 40, FAR / 2, FAR + 8] {
        assert_eq!(name(STEXT + behind), None, "{behind:#x}");
    }
}

#[test]
fn every_layout_is_read_by_its_keys() {
    for (encoding, last, align) in LAYOUTS {
        let (memory, keys) = image(encoding, last, align);
        check(&Kallsyms::read(&VmcoreInfo::parse(keys.as_bytes()), &memory).unwrap(), encoding);
    }
}

#[test]
fn every_layout_is_found_by_search() {
    for (encoding, last, align) in LAYOUTS {
        let (memory, _) = image(encoding, last, align);
        let found = Kallsyms::search(STEXT, &memory);
        check(&found.unwrap_or_else(|why| panic!("{encoding:?} {last}: {why}")), encoding);
    }
}

/// Memory that has lost a page, which is an error, or zeros, as in an ELF file that was made of a damaged dump.
struct Torn<'a>(&'a Memory, std::ops::Range<u64>, bool);

impl ReadVirtual for Torn<'_> {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let end = vaddr + buf.len() as u64;
        let (from, to) = (vaddr.max(self.1.start), end.min(self.1.end));
        if from < to && !self.2 {
            return Err(TranslateError::NotCanonical { vaddr });
        }
        self.0.read(vaddr, buf)?;
        if from < to {
            buf[(from - vaddr) as usize..(to - vaddr) as usize].fill(0);
        }
        Ok(())
    }
}

#[test]
fn a_lost_page_takes_the_symbols_on_it_and_no_others() {
    for (encoding, last, align) in LAYOUTS {
        let (memory, keys) = image(encoding, last, align);
        let info = VmcoreInfo::parse(keys.as_bytes());
        let at = |name: &str| info.symbol(&format!("kallsyms_{name}"));
        let offsets = at("offsets").map(|start| start..start + 4 * COUNT as u64);
        let names = at("names").unwrap()..at("markers").unwrap();
        let mut read = 0;
        let end = STEXT + memory.0.len() as u64 - 0x40000;
        let pages = (STEXT + TABLES as u64..end).step_by(4096);
        for (page, are_zeros) in pages.flat_map(|page| [(page, false), (page, true)]) {
            // Addresses of 8 bytes can be zero.
            if are_zeros && encoding == Encoding::Absolute {
                continue;
            }
            let torn = Torn(&memory, page..page + 4096, are_zeros);
            let within = |table: &std::ops::Range<u64>| table.start <= page && page + 4096 <= table.end;
            let must = within(&names) || offsets.as_ref().is_some_and(within);
            let found = match Kallsyms::read(&info, &torn) {
                Ok(found) => found,
                // Of the symbol that tells how addresses are stored, of tokens, or of addresses of 8 bytes.
                Err(why) => {
                    assert!(!must || page < names.start + 4096, "{encoding:?} {last} {page:#x}: {why}");
                    continue;
                }
            };
            read += 1;
            let mut known = 0;
            for (address, name) in symbols() {
                let name = &name[1..];
                assert!(
                    [None, Some(address)].contains(&found.address(name)),
                    "{encoding:?} {last} {page:#x} {are_zeros}: {name}"
                );
                known += usize::from(found.address(name).is_some());
                let holder = found.containing(address + 31).map(|(start, _, name)| (start, name));
                assert!([None, Some((address, name.into()))].contains(&holder), "{name}: {holder:?}");
            }
            // 1,024 addresses are on a page, and the names of at most two blocks more than its own.
            assert!((COUNT - 1024 - 1..COUNT).contains(&known) || !must, "{encoding:?} {last}: {known}");
        }
        let least = if encoding == Encoding::Absolute { 3 } else { 6 };
        assert!(read >= least, "{encoding:?} {last}: {read}");
    }
}

/// A dump that lost bytes has zeros there, or a tool put them there. They are no names.
#[test]
fn zeros_among_names_are_damage() {
    for (encoding, last, align) in LAYOUTS {
        let (mut memory, keys) = image(encoding, last, align);
        let info = VmcoreInfo::parse(keys.as_bytes());
        let names = (info.symbol("kallsyms_names").unwrap() - STEXT) as usize;
        memory.0[names + 8000..names + 9000].fill(0);
        let said = Kallsyms::read(&info, &memory).unwrap_err().to_string();
        assert!(said.contains("kallsyms_names is damaged"), "{encoding:?} {last}: {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_is_an_error_or_other_symbols(layout in 0..5_usize, patches in prop::collection::vec((any::<u32>(), any::<u64>()), 1..20)) {
        let (encoding, last, align) = LAYOUTS[layout];
        let (mut memory, keys) = image(encoding, last, align);
        for (at, word) in patches {
            let at = TABLES + at as usize % (memory.0.len() - TABLES - 0x40008);
            memory.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if let Ok(found) = Kallsyms::read(&VmcoreInfo::parse(keys.as_bytes()), &memory) {
            prop_assert!(found.iter().count() <= found.len());
        }
        let _ = Kallsyms::search(STEXT, &memory);
    }
}
