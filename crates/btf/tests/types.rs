//! Types of each kind, split BTF, values, and walks over lists, trees and xarrays, whole and broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagehaul_btf::{Btf, Fault, Space};
use pagehaul_kernel::{ReadVirtual, TranslateError};

/// Numbers of kinds (`BTF_KIND_*`).
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const ENUM64: u32 = 19;
/// `kind_flag`: members with bit fields, signed enumerators.
const FLAG: u32 = 1 << 31;

/// BTF in the making: types have numbers in the order in which they are added.
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// What offsets of strings start at: the length of the base's strings.
    strings_start: u32,
    next: u32,
}

impl Builder {
    fn new(base: Option<&Self>) -> Self {
        let strings_start = base.map_or(0, |base| base.strings_start + base.strings.len() as u32);
        let strings = if base.is_some() { Vec::new() } else { vec![0] };
        Self { types: Vec::new(), strings, strings_start, next: base.map_or(1, |base| base.next) }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings_start + self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn add(&mut self, name: &str, kind: u32, entries: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        let info = ((kind & !FLAG) << 24) | (kind & FLAG) | entries;
        for word in [self.name(name), info, size_or_type].iter().chain(rest) {
            self.types.extend(word.to_le_bytes());
        }
        self.next += 1;
        self.next - 1
    }

    /// A structure or union; offsets are in bits.
    fn record(&mut self, kind: u32, name: &str, bytes: u32, members: &[(&str, u32, u32)]) -> u32 {
        let rest: Vec<u32> =
            members.iter().flat_map(|(name, id, offset)| [self.name(name), *id, *offset]).collect();
        self.add(name, kind, members.len() as u32, bytes, &rest)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let types = self.types.len() as u32;
        for word in [24, 0, types, types, self.strings.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        [bytes, self.types.clone(), self.strings.clone()].concat()
    }
}

/// Words of memory; all others cannot be read.
#[derive(Default)]
struct Memory(BTreeMap<u64, u64>);

impl ReadVirtual for Memory {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        for (at, byte) in buf.iter_mut().enumerate() {
            let at = vaddr.wrapping_add(at as u64);
            let word = self.0.get(&(at & !7)).ok_or(TranslateError::NotCanonical { vaddr })?;
            *byte = word.to_le_bytes()[(at & 7) as usize];
        }
        Ok(())
    }
}

impl Memory {
    fn put(&mut self, at: u64, words: &[u64]) {
        self.0.extend(words.iter().enumerate().map(|(index, word)| (at + 8 * index as u64, *word)));
    }
}

/// The types that lists, trees and xarrays need, and one structure with every sort of member.
fn kernel() -> Builder {
    let mut btf = Builder::new(None);
    let int = btf.add("int", INT, 0, 4, &[(1 << 24) | 32]);
    let long = btf.add("long", INT, 0, 8, &[64]);
    let head = btf.next + 1;
    let to_head = btf.add("", PTR, 0, head, &[]);
    assert_eq!(btf.record(STRUCT, "list_head", 16, &[("next", to_head, 0), ("prev", to_head, 64)]), head);
    let row = btf.add("", ARRAY, 0, 0, &[int, int, 4]);
    let table = btf.add("", ARRAY, 0, 0, &[row, int, 3]);
    let constant = btf.add("", CONST, 0, long, &[]);
    let alias = btf.add("number_t", TYPEDEF, 0, constant, &[]);
    let inner = btf.record(UNION, "", 8, &[("first", long, 0), ("second", int, 0)]);
    let bits = |width: u32, offset: u32| (width << 24) | offset;
    let node = btf.next;
    btf.record(
        STRUCT | FLAG,
        "node",
        128,
        &[
            ("link", head, bits(0, 0)),
            ("low", int, bits(3, 128)),
            ("high", int, bits(5, 131)),
            ("", inner, bits(0, 192)),
            ("aliased", alias, bits(0, 256)),
            ("table", table, bits(0, 320)),
        ],
    );
    btf.add("node_t", TYPEDEF, 0, node, &[]);
    let rest = [btf.name("NEGATIVE"), -5_i32 as u32, btf.name("POSITIVE"), 7];
    btf.add("signs", ENUM | FLAG, 2, 4, &rest);
    let rest = [btf.name("LARGE"), 1, 2];
    btf.add("large", ENUM64, 1, 8, &rest);
    let to_rb = btf.next + 1;
    let pointer = btf.add("", PTR, 0, to_rb, &[]);
    btf.record(STRUCT, "rb_node", 24, &[("rb_right", pointer, 64), ("rb_left", pointer, 128)]);
    btf.record(STRUCT, "rb_root", 8, &[("rb_node", pointer, 0)]);
    btf.record(STRUCT, "area", 40, &[("start", long, 0), ("in_tree", to_rb, 64)]);
    btf.record(STRUCT, "xarray", 8, &[("xa_head", to_head, 0)]);
    let slots = btf.add("", ARRAY, 0, 0, &[to_head, int, 4]);
    btf.record(STRUCT, "xa_node", 48, &[("shift", int, 0), ("slots", slots, 64)]);
    btf.record(STRUCT, "maple_tree", 16, &[("ma_root", to_head, 64)]);
    // Pivots and slots of the kernel are 15 and 16, those of maple_arange_64 9 and 10.
    let pivots = btf.add("", ARRAY, 0, 0, &[long, int, 3]);
    // As old encoders have it: without the flag.
    let signed_char = btf.add("signed char", INT, 0, 1, &[8]);
    let unsigned_char = btf.add("unsigned char", INT, 0, 1, &[8]);
    btf.record(STRUCT, "bytes", 2, &[("signed", signed_char, 0), ("unsigned", unsigned_char, 8)]);
    btf.record(STRUCT, "maple_range_64", 64, &[("pivot", pivots, 64), ("slot", slots, 256)]);
    btf.record(STRUCT, "maple_arange_64", 64, &[("pivot", pivots, 64), ("slot", slots, 256)]);
    btf
}

fn types() -> Btf {
    Btf::parse(kernel().bytes()).unwrap()
}

#[test]
fn members_are_found_through_typedefs_unions_and_arrays() {
    let btf = types();
    let offset = |path| btf.member(btf.record("node_t").unwrap(), path).map(|member| member.bit_offset / 8);
    assert_eq!(offset("link.prev"), Some(8));
    assert_eq!((offset("first"), offset("second")), (Some(24), Some(24)));
    assert_eq!(offset("table[2][1]"), Some(40 + 2 * 16 + 4));
    for absent in ["third", "table[x]", "link.up", "first.second"] {
        assert_eq!(offset(absent), None, "{absent}");
    }
    assert_eq!(btf.size(btf.record("node").unwrap()), Some(128));
}

#[test]
fn enumerators_have_signs_and_64_bits() {
    let btf = types();
    assert_eq!(btf.enumerator("NEGATIVE"), Some(-5));
    assert_eq!(btf.enumerator("LARGE"), Some((2 << 32) | 1));
    assert_eq!(btf.enumerator("ABSENT"), None);
    assert_eq!(btf.enum_with("POSITIVE"), [("NEGATIVE".into(), -5), ("POSITIVE".into(), 7)]);
}

#[test]
fn types_of_modules_continue_those_of_the_kernel() {
    let kernel = kernel();
    let mut module = Builder::new(Some(&kernel));
    let base = Arc::new(Btf::parse(kernel.bytes()).unwrap());
    let node = base.record("node").unwrap();
    module.record(STRUCT, "device", 144, &[("flags", 2, 0), ("node", node, 64)]);
    let split = Btf::parse_split(module.bytes(), Arc::clone(&base)).unwrap();
    let device = split.record("device").unwrap();
    assert_eq!(split.member(device, "node.aliased").unwrap().bit_offset, 64 + 256);
    assert_eq!((split.record("node"), split.enumerator("LARGE")), (Some(node), Some((2 << 32) | 1)));
    assert_eq!(base.record("device"), None);
}

#[test]
fn truncated_types_are_refused_at_every_length() {
    let bytes = kernel().bytes();
    for len in 0..bytes.len() {
        assert!(Btf::parse(bytes[..len].to_vec()).is_err(), "{len}");
    }
}

#[test]
fn values_have_the_width_and_sign_of_their_types() {
    let mut memory = Memory::default();
    // low is 0b101, signed: -3. high is 0b01111: 15.
    memory.put(0x1000, &[0, 0, 0b0111_1101, 0x1_ffff_ffff, 42]);
    memory.put(0x3000, &[0xfbfb]);
    let space = Space::new(&memory, types());
    let node = space.object(0x1000, "node").unwrap();
    let value = |path: &str| node.get(path).unwrap().signed().unwrap();
    assert_eq!((value("low"), value("high")), (-3, 15));
    assert_eq!((value("first"), value("second"), value("aliased")), (0x1_ffff_ffff, -1, 42));
    let bytes = space.object(0x3000, "bytes").unwrap();
    let value = |path: &str| bytes.get(path).unwrap().signed().unwrap();
    assert_eq!((value("signed"), value("unsigned")), (-5, 0xfb));
    assert!(matches!(node.get("link").unwrap().signed(), Err(Fault::WrongKind(..))));
    assert!(matches!(node.get("link.next->next"), Err(Fault::Null(0x1000))));
    assert!(matches!(node.number("third"), Err(Fault::NoField { .. })));
    assert!(matches!(node.number("table[0][0]"), Err(Fault::Unreadable(_))));
}

/// A head at 0x1000 and nodes at 0x2000, 0x3000 and so on, in a ring.
fn ring(nodes: u64) -> Memory {
    let mut memory = Memory::default();
    let at = |index: u64| 0x1000 * (index % (nodes + 1) + 1);
    for index in 0..=nodes {
        memory.put(at(index), &[at(index + 1), at(index + nodes)]);
    }
    memory
}

fn walk(memory: &Memory) -> (Vec<u64>, Option<String>) {
    let space = Space::new(memory, types());
    let walk = space.object(0x1000, "list_head").unwrap().list("node", "link").unwrap();
    (walk.items.iter().map(|item| item.address()).collect(), walk.broken)
}

#[test]
fn lists_are_read_from_both_ends() {
    assert_eq!(walk(&ring(4)), (vec![0x2000, 0x3000, 0x4000, 0x5000], None));
    assert_eq!(walk(&ring(0)), (vec![], None));
    // A node that cannot be read: the rest comes from the other end.
    let mut lost = ring(4);
    lost.0.remove(&0x3000);
    lost.0.remove(&0x3008);
    let (items, broken) = walk(&lost);
    assert_eq!(items, [0x2000, 0x4000, 0x5000]);
    assert!(broken.unwrap().contains("ends early"));
    // One that leads back.
    let mut looped = ring(4);
    looped.put(0x4000, &[0x2000]);
    let (items, broken) = walk(&looped);
    assert_eq!(items, [0x2000, 0x3000, 0x4000, 0x5000]);
    assert!(broken.unwrap().contains("meets itself"));
}

#[test]
fn trees_are_read_in_order_and_loops_end() {
    let mut memory = Memory::default();
    // Areas at 0x2000, 0x3000, 0x4000; their nodes 8 bytes on. Words of a node: parent, right, left.
    memory.put(0x1000, &[0x3008]);
    memory.put(0x3000, &[2, 0, 0x4008, 0x2008]);
    memory.put(0x2000, &[1, 0, 0, 0]);
    memory.put(0x4000, &[3, 0, 0, 0]);
    let starts = |memory: &Memory| {
        let space = Space::new(memory, types());
        let walk = space.object(0x1000, "rb_root").unwrap().tree("area", "in_tree").unwrap();
        let starts = walk.items.iter().filter_map(|area| area.number("start").ok());
        (starts.collect::<Vec<_>>(), walk.broken)
    };
    assert_eq!(starts(&memory), (vec![1, 2, 3], None));
    // What is right of the root cannot be read.
    let right = memory.0.remove(&0x3010).unwrap();
    let (found, broken) = starts(&memory);
    assert_eq!(found, [1, 2]);
    assert!(broken.unwrap().contains("the tree at 0x1000: "));
    memory.put(0x3010, &[right]);
    // The left child of the first is the root.
    memory.put(0x2018, &[0x3008]);
    let (found, broken) = starts(&memory);
    assert_eq!(found, [1, 2, 3]);
    assert!(broken.unwrap().contains("meets itself at 0x3008"));
    // Two ways to each node below: they would be walked 2^levels times.
    let mut memory = Memory::default();
    memory.put(0x1000, &[0x2008]);
    for level in 2..40 {
        let below = (level + 1) * 0x1000 + 8;
        memory.put(level * 0x1000, &[level, 0, below, below]);
    }
    memory.put(40 * 0x1000, &[40, 0, 0, 0]);
    let (found, broken) = starts(&memory);
    assert_eq!(found.len(), 39);
    assert!(broken.unwrap().contains("meets itself"));
}

#[test]
fn xarrays_have_indices_and_refuse_nodes_that_do_not_descend() {
    let mut memory = Memory::default();
    // Internal entries end in 0b10. The upper node has a shift of 2.
    memory.put(0x1000, &[0x1_0002]);
    memory.put(0x1_0000, &[2, 0x2_0002, 0, 0x9000, 0x15]);
    memory.put(0x2_0000, &[0, 0, 0x8000, 0, 0]);
    let entries = |memory: &Memory| {
        let space = Space::new(memory, types());
        let walk = space.object(0x1000, "xarray").unwrap().xarray().unwrap();
        (walk.items, walk.broken)
    };
    // 0x15 is a value, not a pointer.
    assert_eq!(entries(&memory), (vec![(1, 0x8000), (8, 0x9000)], None));
    // A node that cannot be read.
    let shift = memory.0.remove(&0x2_0000).unwrap();
    let (found, broken) = entries(&memory);
    assert_eq!(found, [(8, 0x9000)]);
    assert!(broken.unwrap().contains("the xarray at 0x1000: "));
    memory.put(0x2_0000, &[shift]);
    memory.put(0x1_0010, &[0x2_0002]);
    let (found, broken) = entries(&memory);
    assert_eq!(found, [(1, 0x8000), (8, 0x9000)]);
    assert!(broken.unwrap().contains("meets itself at 0x20002"));
    memory.put(0x1_0010, &[0]);
    memory.put(0x2_0008, &[0x3_0002]);
    memory.put(0x3_0000, &[2, 0, 0, 0, 0]);
    assert!(entries(&memory).1.unwrap().contains("contradicts itself"));
}

#[test]
fn maple_trees_have_ranges_and_refuse_nodes_that_contradict_each_other() {
    // Low bits of a node: its type times 8, 4, and 2 for the root.
    const LEAF: u64 = 0x8 | 4;
    const ROOT: u64 = 3 << 3 | 4 | 2;
    let mut memory = Memory::default();
    memory.put(0x1000, &[0, 0x1_0000 | ROOT]);
    // Words of a node: parent, three pivots, four slots. The third child covers the rest.
    memory.put(0x1_0000, &[0, 99, 999, 0, 0x2_0000 | LEAF, 0x3_0000 | LEAF, 0x4_0000 | LEAF, 0]);
    // Index 0 alone; a gap to 9; 10 to 99, and a word that is not a slot.
    memory.put(0x2_0000, &[0, 0, 9, 99, 0xa000, 0, 0xb000, 0xdead]);
    // All four slots are in use; a value entry and a reserved one are not pointers.
    memory.put(0x3_0000, &[0, 199, 299, 399, 0xc000, 0x15, 0x406, 0xd000]);
    memory.put(0x4_0000, &[0, 1999, 0, 0, 0xe000, 0xf000, 0, 0]);
    let entries = |memory: &Memory| {
        let space = Space::new(memory, types());
        let walk = space.object(0x1000, "maple_tree").unwrap().maple_tree().unwrap();
        let items = walk.items.iter().map(|entry| (entry.first, entry.last, entry.pointer));
        (items.collect::<Vec<_>>(), walk.broken)
    };
    let whole = [
        (0, 0, 0xa000),
        (10, 99, 0xb000),
        (100, 199, 0xc000),
        (400, 999, 0xd000),
        (1000, 1999, 0xe000),
        (2000, u64::MAX, 0xf000),
    ];
    assert_eq!(entries(&memory), (whole.to_vec(), None));
    let mut alone = Memory::default();
    alone.put(0x1000, &[0, 0xa000]);
    assert_eq!(entries(&alone), (vec![(0, 0, 0xa000)], None));
    alone.put(0x1000, &[0, 0]);
    assert_eq!(entries(&alone), (vec![], None));
    // A leaf that cannot be read: the others remain.
    let mut lost = Memory(memory.0.clone());
    lost.0.remove(&0x3_0008);
    let (items, broken) = entries(&lost);
    assert_eq!((items.len(), broken.is_some()), (4, true));
    // Pivots that descend.
    memory.put(0x1_0010, &[50]);
    assert!(entries(&memory).1.unwrap().contains("contradict"));
    // A node that is its own child.
    let mut deep = Memory::default();
    deep.put(0x1000, &[0, 0x1_0000 | ROOT]);
    deep.put(0x1_0000, &[0, u64::MAX, 0, 0, 0x1_0000 | ROOT & !2, 0, 0, 0]);
    assert_eq!(entries(&deep).0, []);
    assert!(entries(&deep).1.unwrap().contains("too deep"));
}

/// 5.10's BTF has pointers to declarations, although it has the structures.
#[test]
fn a_declaration_leads_to_its_structure() {
    let mut btf = Builder::new(None);
    let long = btf.add("long", INT, 0, 8, &[64]);
    let declared = btf.add("ring", FORWARD, 0, 0, &[]);
    let pointer = btf.add("", PTR, 0, declared, &[]);
    let nowhere = btf.add("other", FORWARD, 0, 0, &[]);
    let lost = btf.add("", PTR, 0, nowhere, &[]);
    btf.record(STRUCT, "ring", 16, &[("count", long, 64)]);
    btf.record(STRUCT, "holder", 16, &[("ring", pointer, 0), ("other", lost, 64)]);
    let mut memory = Memory::default();
    memory.put(0x1000, &[0x2000, 0x3000]);
    memory.put(0x2000, &[0, 7]);
    let space = Space::new(&memory, Btf::parse(btf.bytes()).unwrap());
    let holder = space.object(0x1000, "holder").unwrap();
    assert_eq!(holder.get("ring->count").unwrap().unsigned().unwrap(), 7);
    assert!(matches!(holder.get("other->count"), Err(Fault::NoField { .. })));
}
