//! `pagehaul info` and `pagehaul verify` on cores of processes, whole ones and damaged ones.
#![cfg(feature = "process")]

mod common {
    pub mod subject;
}

use std::fs;
use std::path::{Path, PathBuf};

use common::subject::{Subject, tool};
use tempfile::tempdir;

/// Exit status and output.
fn ask(command: &str, path: &Path) -> (i32, String) {
    let output = tool(&[command]).arg(path).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

fn decompressed(bytes: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(most);
    zstd_safe::decompress(&mut out, bytes).ok().map(|_| out)
}

/// A core, plain or in frames, and its bytes.
fn core(directory: &Path, name: &str) -> (Subject, PathBuf, Vec<u8>) {
    let subject = Subject::start(&["10", "2"]);
    let path = directory.join(name);
    subject.core(&["--exclude", "shared"], &path);
    let bytes = fs::read(&path).unwrap();
    (subject, path, bytes)
}

#[test]
fn info_and_verify_know_cores() {
    let directory = tempdir().unwrap();
    for (name, format) in [("core", "ELF core"), ("core.zst", "ELF core in zstd frames")] {
        let (subject, path, _) = core(directory.path(), name);
        let (code, said) = ask("info", &path);
        assert_eq!(code, 0);
        let process = format!("{} (subject)", subject.pid());
        for part in [format, "complete      yes", &process, "threads       3", "subject 10 2"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        let (code, said) = ask("verify", &path);
        assert_eq!(code, 0, "{said}");
        let verdict = if name == "core" { "\nreadable; without checksums" } else { "\nintact\n" };
        assert!(said.starts_with(&format!("{format}: ")) && said.contains(verdict), "{said}");
        assert_eq!(said.contains("no checksums"), name == "core", "{said}");
    }
}

#[test]
fn every_flipped_bit_that_matters_is_found() {
    let directory = tempdir().unwrap();
    let (_subject, path, good) = core(directory.path(), "core.zst");
    let most = 1 << 30;
    let content = decompressed(&good, most).unwrap();
    let places = (0..40).chain((40..good.len()).step_by(good.len() / 60)).chain(good.len() - 40..good.len());
    let mut unnoticed = 0;
    for (turn, at) in places.enumerate() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (turn % 8);
        fs::write(&path, &bad).unwrap();
        let (code, said) = ask("verify", &path);
        if code == 0 {
            // A bit of the encoding that means nothing: the core is the same.
            assert!(decompressed(&bad, most).unwrap() == content, "byte {at}: {said}");
            unnoticed += 1;
        } else {
            // In the first bytes, it is no file of ours any more.
            assert!(
                code == 3 && said.contains("DAMAGED OR INCOMPLETE") || at < 4 && code == 1,
                "byte {at}: {said}"
            );
        }
    }
    assert!(unnoticed < 10, "{unnoticed}");
}

#[test]
fn damage_is_placed() {
    let directory = tempdir().unwrap();
    let (_subject, path, good) = core(directory.path(), "core.zst");
    let mut bad = good.clone();
    for at in [good.len() / 3, good.len() / 2] {
        bad[at] ^= 0x10;
    }
    fs::write(&path, &bad).unwrap();
    let (code, said) = ask("verify", &path);
    assert_eq!(code, 3, "{said}");
    assert_eq!(said.matches("fault: the frame at byte 0x").count(), 2, "{said}");
    assert_eq!(said.matches("of the core) is damaged").count(), 2, "{said}");
    let output = tool(&["verify", "--json"]).arg(&path).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["intact"], &found["fault_count"]), (&false.into(), &2.into()));
}

#[test]
fn cut_and_unfinished_cores_are_not_whole() {
    let directory = tempdir().unwrap();
    for name in ["core", "core.zst"] {
        let (_subject, path, good) = core(directory.path(), name);
        for length in [good.len() - 1, good.len() / 2, 20_000] {
            fs::write(&path, &good[..length]).unwrap();
            let (code, said) = ask("verify", &path);
            assert_eq!(code, 3, "{name} cut to {length}: {said}");
            let part = if name == "core" { "it is truncated" } else { "no table of frames" };
            assert!(said.contains(part) && said.contains("DAMAGED OR INCOMPLETE"), "{said}");
        }
    }
    let (_subject, path, mut bytes) = core(directory.path(), "unfinished");
    bytes[48] = 1;
    fs::write(&path, &bytes).unwrap();
    let (code, said) = ask("verify", &path);
    assert!(code == 3 && said.contains("its writer did not finish"), "{said}");
}
