//! The code that restores a thread. It uses neither the stack nor instructions that change flags.

use super::{PC, X8};
use crate::arch::{StubCode, word};

pub(super) const STUB: StubCode = StubCode { code: &CODE, restore: RESTORE, data_size: DATA, data };

/// A64 machine code; the data follows.
#[rustfmt::skip]
const CODE: [u8; 104] = instructions([
    // The call: whatever the tracer set.
    0xd4000001, //  0 svc  #0
    // 0: a child of the process. It ends.
    0xb4000100, //  4 cbz  x0, 24
    // An error number: no child to wait for.
    0xb7f80120, //  8 tbnz x0, #63, 2c
    // wait4(child, 0, __WALL, 0). After a call that made no child it fails with ECHILD.
    0xd2800001, //  c mov  x1, #0
    0xd2a80002, // 10 mov  x2, #0x40000000
    0xd2800003, // 14 mov  x3, #0
    0xd2802088, // 18 mov  x8, #260
    0xd4000001, // 1c svc  #0
    0x14000003, // 20 b    2c
    // exit(0)
    0xd2800ba8, // 24 mov  x8, #93
    0xd4000001, // 28 svc  #0
    // rt_sigprocmask(SIG_SETMASK, mask, 0, 8)
    0xd2800040, // 2c mov  x0, #2
    0x10000201, // 30 adr  x1, 70
    0xd2800002, // 34 mov  x2, #0
    0xd2800103, // 38 mov  x3, #8
    0xd28010e8, // 3c mov  x8, #135
    0xd4000001, // 40 svc  #0
    // The registers.
    0x580001a0, // 44 ldr  x0, 78
    0x580001c1, // 48 ldr  x1, 80
    0x580001e2, // 4c ldr  x2, 88
    0x58000203, // 50 ldr  x3, 90
    0x58000224, // 54 ldr  x4, 98
    0x58000245, // 58 ldr  x5, a0
    0x58000268, // 5c ldr  x8, a8
    0xd503201f, // 60 nop
    0xd503201f, // 64 nop
    // The data begins with a branch to where the thread was.
]);
const RESTORE: u64 = 0x2c;
/// A branch and a word without meaning, the signal mask, X0 to X5, and X8.
const DATA: usize = 9 * 8;

const fn instructions(words: [u32; 26]) -> [u8; 104] {
    let mut bytes = [0; 104];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (words[at / 4] >> (at % 4 * 8)) as u8;
        at += 1;
    }
    bytes
}

fn data(saved: &[u8], mask: u64, address: u64) -> Option<Vec<u8>> {
    let mut data = branch(address, word(saved, PC))?.to_le_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&mask.to_ne_bytes());
    for register in [0, 1, 2, 3, 4, 5, X8] {
        data.extend_from_slice(&word(saved, register).to_ne_bytes());
    }
    Some(data)
}

/// Returns the branch instruction at `from` to `to`, which must be less than 128 MiB away. A jump to any address would change
/// a register.
fn branch(from: u64, to: u64) -> Option<u32> {
    let words = to.wrapping_sub(from).cast_signed() >> 2;
    (-(1 << 25)..1 << 25).contains(&words).then_some(0x1400_0000 | words as u32 & 0x03ff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_reach_128_mib_both_ways() {
        assert_eq!(branch(0x1000, 0x1008), Some(0x1400_0002));
        assert_eq!(branch(0x1008, 0x1000), Some(0x17ff_fffe));
        assert_eq!(branch(0, (128 << 20) - 4), Some(0x15ff_ffff));
        assert_eq!(branch(128 << 20, 0), Some(0x1600_0000));
        assert_eq!(branch(0, 128 << 20), None);
        assert_eq!(branch((128 << 20) + 4, 0), None);
        assert_eq!(branch(u64::MAX - 3, 0), Some(0x1400_0001));
    }
}
