//! Checksum files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_output::checksums::Checksums;

fuzz_target!(|data: &[u8]| {
    if let Ok(sums) = Checksums::decode(&String::from_utf8_lossy(data)) {
        assert_eq!(sums.hashes.len() as u64, sums.size.div_ceil(sums.extent));
        assert_eq!(Checksums::decode(&sums.encode()).as_ref(), Ok(&sums));
    }
});
