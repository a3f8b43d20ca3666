//! ORC tables: a version, a number of addresses, then addresses and entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_unwind::{Table, Version};

const START: u64 = 0xffff_ffff_8200_0000;

fuzz_target!(|data: &[u8]| {
    let Some(([version, count], rest)) = data.split_first_chunk::<2>() else { return };
    let version = [Version::V1, Version::V2, Version::V3, Version::V4][usize::from(version % 4)];
    let (addresses, entries) = rest.split_at(rest.len().min(4 * usize::from(*count)));
    let table = Table::from_bytes(START, addresses.to_vec(), entries.to_vec(), version);
    for pc in [0, START - 64, START, START + 64, u64::MAX] {
        let _ = table.find(pc);
    }
});
