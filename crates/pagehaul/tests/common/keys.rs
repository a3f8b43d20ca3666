//! Keys of age and SSH, and what their holder reads.
#![allow(dead_code)] // each test file uses its own part

use std::fs;
use std::path::{Path, PathBuf};

use pagehaul_encryption::{Decrypted, Identity};
use pagehaul_physmem::file::{PlainFile, ReadAt};

pub fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data").join(name)
}

pub fn text(name: &str) -> String {
    key(name).to_str().unwrap().to_owned()
}

/// The public key of age.
pub fn public() -> String {
    let secret = fs::read_to_string(key("age.txt")).unwrap();
    secret.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap().to_owned()
}

/// What the holder of the key of age reads.
pub fn decrypted(path: &Path) -> Vec<u8> {
    let file =
        Decrypted::open(PlainFile::open(path).unwrap(), &Identity::read(&key("age.txt")).unwrap()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}
