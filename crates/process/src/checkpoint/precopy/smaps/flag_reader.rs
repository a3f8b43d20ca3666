//! The flags of a process's mappings, read in the kernel by a BPF program.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use pagehaul_btf::Btf;

use super::bpf::{self, Instruction, instruction};
use crate::units::{Pid, page_size};

const BTF: &str = "/sys/kernel/btf/vmlinux";
/// `bpf_seq_write`, which programs may call whose license allows the GPL's.
const SEQ_WRITE: i32 = 127;
/// Bytes that the program writes of each mapping.
const RECORD: usize = 24;

/// Pages that are read at a time: more than the kernel gives (8, `bpf_seq_read()`, kernel/bpf/bpf_iter.c), so that it never gives parts of
/// a record.
const ROOM: u64 = 16;

/// A mapping's place and flags (`vm_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flags {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) flags: u64,
}

/// A loaded program.
pub(super) struct FlagReader(OwnedFd);

impl FlagReader {
    /// An error is the reason why this kernel does not take it.
    pub(super) fn load() -> Result<Self, String> {
        let bytes = std::fs::read(BTF).map_err(|error| format!("{BTF}: {error}"))?;
        let btf = Btf::parse(bytes).map_err(|error| format!("{BTF}: {error}"))?;
        let lacks = |what: &str| format!("{BTF} has no {what}");
        let target = btf.function("bpf_iter_task_vma").ok_or_else(|| lacks("bpf_iter_task_vma"))?;
        let offset = |record: &str, member: &str| {
            let found = btf.member(btf.record(record)?, member)?;
            i16::try_from(found.bit_offset / 8).ok()
        };
        let place = |record: &str, member: &str| {
            offset(record, member).ok_or_else(|| lacks(&format!("{record}.{member}")))
        };
        let program = program(&Places {
            meta: place("bpf_iter__task_vma", "meta")?,
            mapping: place("bpf_iter__task_vma", "vma")?,
            file: place("bpf_iter_meta", "seq")?,
            fields: [
                place("vm_area_struct", "vm_start")?,
                place("vm_area_struct", "vm_end")?,
                place("vm_area_struct", "vm_flags")?,
            ],
        });
        let loaded = bpf::load(&program, c"Dual MIT/GPL", target);
        loaded.map(Self).map_err(|error| format!("the kernel does not take the BPF program: {error}"))
    }

    /// The mappings of a process, in the order of their addresses.
    pub(super) fn read(&self, pid: Pid) -> io::Result<Vec<Flags>> {
        let mut file = File::from(bpf::iterate(self.0.as_fd(), pid)?);
        let mut room = vec![0; (ROOM * page_size()) as usize];
        let mut found: Vec<Flags> = Vec::new();
        loop {
            let length = file.read(&mut room)?;
            let records = room.get(..length).unwrap_or_default().as_chunks().0;
            if records.is_empty() {
                return Ok(found);
            }
            for record in records.iter().map(Flags::new) {
                // Where it took several reads, Linux 6.18 begins the last of them again and again.
                if found.last().is_some_and(|last| record.start < last.end) {
                    return Ok(found);
                }
                found.push(record);
            }
        }
    }
}

impl Flags {
    fn new(record: &[u8; RECORD]) -> Self {
        let mut words = record.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut word = || words.next().unwrap_or_default();
        Self { start: word(), end: word(), flags: word() }
    }
}

/// Offsets in the kernel's structures.
struct Places {
    meta: i16,
    mapping: i16,
    file: i16,
    fields: [i16; 3],
}

/// Writes three words of each mapping to the iterator's file.
fn program(places: &Places) -> Vec<Instruction> {
    // BPF_LDX | BPF_MEM | BPF_DW, BPF_STX | BPF_MEM | BPF_DW, BPF_ALU64 | BPF_MOV with a register and a number, BPF_ALU64 | BPF_ADD,
    // BPF_JMP | BPF_JEQ, BPF_JMP | BPF_CALL and BPF_JMP | BPF_EXIT.
    const LOAD: u8 = 0x79;
    const STORE: u8 = 0x7b;
    const COPY: u8 = 0xbf;
    const SET: u8 = 0xb7;
    const ADD: u8 = 0x07;
    const IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const STACK: u8 = 10;
    let [start, end, flags] = places.fields;
    let room = -(RECORD as i16);
    vec![
        instruction(LOAD, 6, 1, places.mapping, 0),
        instruction(LOAD, 7, 1, places.meta, 0),
        // It is called once more at the end, with none.
        instruction(IF_EQUAL, 6, 0, 11, 0),
        instruction(LOAD, 2, 6, start, 0),
        instruction(STORE, STACK, 2, room, 0),
        instruction(LOAD, 2, 6, end, 0),
        instruction(STORE, STACK, 2, room + 8, 0),
        instruction(LOAD, 2, 6, flags, 0),
        instruction(STORE, STACK, 2, room + 16, 0),
        instruction(LOAD, 1, 7, places.file, 0),
        instruction(COPY, 2, STACK, 0, 0),
        instruction(ADD, 2, 0, 0, room.into()),
        instruction(SET, 3, 0, 0, RECORD as i32),
        instruction(CALL, 0, 0, 0, SEQ_WRITE),
        instruction(SET, 0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}
