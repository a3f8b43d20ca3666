//! One ORC entry: 6 bytes that describe how to find the caller of an instruction.

/// Layout of entries. A hash in the kernel's `.orc_header` names it since 6.4 (b9f174c811e3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 4.14 (ee9f8fce9964): 2 bits of type, then `end`.
    V1,
    /// 6.3 (ffb1b4a41016): 2 bits of type, then `signal` and `end`.
    V2,
    /// 6.4 (fb799447ae29): 3 bits of type, then `signal`. Also in 5.14 of RHEL 9.6.
    V3,
    /// 7.1 (1735858caa4b): as V3, with other numbers of registers.
    V4,
}

/// How an entry leads to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Undefined.
    Undefined,
    /// There is no caller: the bottom of the stack.
    End,
    /// A call: the return address is below the CFA.
    Call,
    /// The CFA is a `struct pt_regs`.
    Regs,
    /// The CFA is the part of a `struct pt_regs` that the processor pushes.
    RegsPartial,
}

/// What an address is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the processor")]
pub enum Register {
    Undefined,
    /// The CFA itself.
    PreviousSp,
    Ax,
    Dx,
    Di,
    Bp,
    Sp,
    R10,
    R13,
    /// The word at BP plus the offset.
    BpIndirect,
    /// The word at SP, plus the offset (before 87ccc826bf1c, 5.12: the word at SP plus the offset).
    SpIndirect,
}

impl Register {
    fn new(number: u16, version: Version) -> Self {
        use Register::*;
        let old = [Undefined, PreviousSp, Dx, Di, Bp, Sp, R10, R13, BpIndirect, SpIndirect];
        let new = [Undefined, Ax, Dx, Sp, Bp, Di, R10, R13, PreviousSp, SpIndirect, BpIndirect];
        let names = if version == Version::V4 { &new[..] } else { &old[..] };
        names.get(usize::from(number)).copied().unwrap_or(Undefined)
    }
}

/// A decoded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Added to the register.
    pub sp_offset: i64,
    /// Added to the register.
    pub bp_offset: i64,
    /// What the CFA, the stack pointer of the caller, is computed from.
    pub sp: Register,
    /// Where the caller's BP is.
    pub bp: Register,
    /// Type of the entry.
    pub kind: EntryKind,
    /// Whether the next instruction pointer is exact: an interrupted instruction, not a return address.
    pub signal: bool,
}

impl Entry {
    /// Decodes 6 bytes.
    pub fn decode([a, b, c, d, e, f]: [u8; 6], version: Version) -> Self {
        let bits = u16::from_le_bytes([e, f]);
        let sp = Register::new(bits & 15, version);
        let (kind, signal) = match version {
            Version::V1 | Version::V2 => {
                let kind = match bits >> 8 & 3 {
                    0 => EntryKind::Call,
                    1 => EntryKind::Regs,
                    2 => EntryKind::RegsPartial,
                    _ => EntryKind::Undefined,
                };
                let end = bits >> if version == Version::V1 { 10 } else { 11 } & 1 == 1;
                let signal = match version {
                    Version::V1 => kind != EntryKind::Call,
                    _ => bits >> 10 & 1 == 1,
                };
                match (sp, end) {
                    (Register::Undefined, true) => (EntryKind::End, signal),
                    (Register::Undefined, false) => (EntryKind::Undefined, signal),
                    _ => (kind, signal),
                }
            }
            Version::V3 | Version::V4 => {
                let kind = match bits >> 8 & 7 {
                    1 => EntryKind::End,
                    2 => EntryKind::Call,
                    3 => EntryKind::Regs,
                    4 => EntryKind::RegsPartial,
                    _ => EntryKind::Undefined,
                };
                (kind, bits >> 11 & 1 == 1)
            }
        };
        Self {
            sp_offset: i16::from_le_bytes([a, b]).into(),
            bp_offset: i16::from_le_bytes([c, d]).into(),
            sp,
            bp: Register::new(bits >> 4 & 15, version),
            kind,
            signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bits: u16, version: Version) -> Entry {
        let [low, high] = bits.to_le_bytes();
        Entry::decode([16, 0, 0xf0, 0xff, low, high], version)
    }

    #[test]
    fn each_version_has_its_bits() {
        let call = entry(0x0015, Version::V1);
        assert_eq!((call.kind, call.sp, call.bp), (EntryKind::Call, Register::Sp, Register::PreviousSp));
        assert_eq!((call.sp_offset, call.bp_offset, call.signal), (16, -16, false));
        assert_eq!(entry(0x0400, Version::V1).kind, EntryKind::End);
        assert_eq!(entry(0x0000, Version::V1).kind, EntryKind::Undefined);
        assert!(entry(0x0105, Version::V1).signal);
        assert_eq!(entry(0x0505, Version::V2), Entry { kind: EntryKind::Regs, ..entry(0x0105, Version::V1) });
        assert_eq!(entry(0x0800, Version::V2).kind, EntryKind::End);
        assert_eq!(entry(0x0b05, Version::V3).kind, EntryKind::Regs);
        assert_eq!(entry(0x0100, Version::V3).kind, EntryKind::End);
        let renumbered = entry(0x0283, Version::V4);
        assert_eq!((renumbered.sp, renumbered.bp), (Register::Sp, Register::PreviousSp));
    }
}
