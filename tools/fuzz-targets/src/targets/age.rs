//! Files in age format, keys and recipients.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use pagehaul_encryption::{Decrypted, Identity, Recipient, Recipients};
use pagehaul_physmem::file::ReadAt;

use crate::{MemoryFile, in_file};

/// A key of `age-keygen`, whose public part is in its comment.
pub(crate) const KEY: &str = include_str!("../../../../crates/encryption/tests/data/age.txt");

/// Returns who can read the seeds.
fn identities() -> &'static [Identity] {
    static IDENTITIES: OnceLock<Vec<Identity>> = OnceLock::new();
    IDENTITIES.get_or_init(|| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(KEY.as_bytes()).expect("room for it");
        Identity::read(file.path()).expect("a key")
    })
}

/// Runs the target.
pub fn run(data: &[u8]) {
    if let Ok(file) = Decrypted::open(MemoryFile::new(data), identities()) {
        let mut buf = [0; 600];
        for offset in [0, 65_000, file.size() / 2, file.size().saturating_sub(10), file.size(), u64::MAX] {
            let count = file.read_at(offset, &mut buf).unwrap_or(0);
            assert!(count <= buf.len() && (count == 0 || offset + count as u64 <= file.size()));
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Recipient::parse(text);
        if let Ok(recipients) = Recipients::of_text(text, Path::new("recipients")) {
            assert!(recipients.count() > 0);
        }
    }
    in_file(data, |path| {
        if let Ok(identities) = Identity::read(path) {
            assert!(!identities.is_empty());
        }
    });
}
