//! Checksum files.

use pagehaul_output::checksums::Checksums;

/// Runs the target.
pub fn run(data: &[u8]) {
    if let Ok(sums) = Checksums::decode(&String::from_utf8_lossy(data)) {
        assert_eq!(sums.hashes.len() as u64, sums.size.div_ceil(sums.extent));
        assert_eq!(Checksums::decode(&sums.encode()).as_ref(), Ok(&sums));
    }
}
