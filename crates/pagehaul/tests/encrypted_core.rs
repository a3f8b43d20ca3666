//! Encrypted cores: what their holders read, and what is left of one that could not be completed.
#![cfg(feature = "process")]

mod common {
    pub mod subject;
}

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::subject::{BINARY, Subject, tool, with_small_disk};
use object::read::elf::{ElfFile64, ProgramHeader};
use pagehaul_encryption::{Decrypted, Identity};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_test_support::content::{PAGE, fill};
use tempfile::tempdir;

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data").join(name)
}

fn recipient() -> String {
    key("ssh.pub").display().to_string()
}

/// What the holder of the key reads, and whether it is all.
fn decrypted(path: &Path) -> (Vec<u8>, bool) {
    let file =
        Decrypted::open(PlainFile::open(path).unwrap(), &Identity::read(&key("ssh")).unwrap()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    (bytes, file.is_complete())
}

/// Checks that an ELF core has the subject's memory.
fn assert_has_memory_of(subject: &Subject, file: &[u8]) {
    let core = ElfFile64::<object::LittleEndian>::parse(file).unwrap();
    let endian = object::LittleEndian;
    let held = core.elf_program_headers().iter().find_map(|header| {
        let skip = subject.address.checked_sub(header.p_vaddr(endian))?;
        let at = (header.p_offset(endian) + skip) as usize;
        (skip + subject.bytes <= header.p_filesz(endian)).then(|| &file[at..at + subject.bytes as usize])
    });
    let mut expected = vec![0; PAGE];
    for (index, page) in held.expect("the subject's memory").chunks(PAGE).enumerate() {
        fill(index, &mut expected);
        assert!(page == expected, "page {index} differs");
    }
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn holders_of_a_key_read_the_core() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["20", "3"]);
    let path = directory.path().join("core.age");
    let core = ["core", "-q", "--force", "--encrypt-to", &recipient()];
    for mode in [&[][..], &["--snapshot"], &["--max-memory", "4M"]] {
        succeeds(
            &tool(&[&core[..], mode, &[&subject.pid(), path.to_str().unwrap()]].concat()).output().unwrap(),
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read(&path).unwrap().starts_with(b"age-encryption.org/v1\n"));
        let (frames, is_complete) = decrypted(&path);
        assert!(is_complete, "{mode:?}");
        let mut elf = Vec::with_capacity(1 << 30);
        zstd_safe::decompress(&mut elf, &frames).expect("any zstd decompresses it");
        assert_has_memory_of(&subject, &elf);
        subject.goes_on();
    }
    let stream = tool(&[&core[..], &["-c", "none", &subject.pid(), "-"]].concat()).output().unwrap();
    succeeds(&stream);
    fs::write(&path, &stream.stdout).unwrap();
    let (elf, is_complete) = decrypted(&path);
    assert!(is_complete);
    assert_has_memory_of(&subject, &elf);
    subject.goes_on();
}

#[test]
fn on_a_full_disk_the_stream_ends_early_and_the_process_goes_on() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["40", "2"]);
    // With a file that is to be replaced.
    let script = format!(
        "cd disk && echo precious > core.age && \
         {BINARY} core -q --force -c none --encrypt-to '{}' {} core.age; code=$?; \
         cat core.age && cp core.age.incomplete ..; exit $code",
        recipient(),
        subject.pid()
    );
    let output = with_small_disk(directory.path(), &script);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("No space left on device") && said.contains("core.age.incomplete ends early"),
        "{said}"
    );
    assert_eq!(output.stdout, b"precious\n");
    let (elf, is_complete) = decrypted(&directory.path().join("core.age.incomplete"));
    assert!(!is_complete && elf.starts_with(b"\x7fELF"), "{} bytes", elf.len());
    subject.goes_on();
}

#[test]
fn what_cannot_be_encrypted_is_not_written() {
    let directory = tempdir().unwrap();
    let subject = Subject::start(&["1", "1"]);
    let keys = directory.path().join("keys");
    fs::copy(key("ssh.pub"), &keys).unwrap();
    let keys = keys.to_str().unwrap();
    let path = directory.path().join("core.age");
    for (recipient, output) in [("age1nonsense", path.to_str().unwrap()), (keys, keys)] {
        let core = ["core", "--force", "--encrypt-to", recipient, &subject.pid(), output];
        let output = tool(&core).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(!path.exists());
    assert_eq!(fs::read(keys).unwrap(), fs::read(key("ssh.pub")).unwrap());
}
