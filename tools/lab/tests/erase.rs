//! Erases the keys of a guest, and searches its dumps for them.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::succeeds;
use lab::secrets::{Hits, search};
use lab_guest::secrets::Secret;
use serde_json::Value;

fn keys() -> Vec<Vec<u8>> {
    let bytes = |secret: &Secret| {
        let mut bytes = vec![0; secret.len()];
        secret.fill(&mut bytes);
        bytes
    };
    Secret::ALL.iter().map(bytes).collect()
}

/// The keys whose schedules are of the keys of the guest.
fn schedules<'a>(hits: &'a Hits, keys: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    let is_of_guest =
        |key: &&[u8]| keys.iter().any(|of_guest| of_guest.windows(key.len()).any(|part| part == *key));
    hits.schedules.iter().map(Vec::as_slice).filter(is_of_guest).collect()
}

/// The report without what is of the dump as a file.
fn report(dump: &Path) -> Value {
    serde_json::from_str(&succeeds(&["triage", "--json", "--tasks", "--stacks"], &[dump])).unwrap()
}

fn check(vmcore: &Path, kernel: &str) {
    let keys = keys();
    let directory = tempfile::tempdir().unwrap();
    for level in ["0", "31"] {
        let path = |name: &str| directory.path().join(format!("{name}-{level}"));
        let (before, after, dump) = (path("before"), path("after"), path("dump"));
        succeeds(&["convert", "-q", "-d", level, "-f", "elf"], &[vmcore, &before]);
        let found = search(&before, &keys).unwrap();
        // Of the master key of a file system the kernel keeps only what it derives others from.
        let kept = |index: &usize| Secret::ALL[*index] != Secret::FileSystem;
        let expected: BTreeSet<usize> = (0..keys.len()).filter(kept).collect();
        assert_eq!(found.keys, expected, "{kernel}, level {level}");
        assert_eq!(schedules(&found, &keys).len(), 3, "{kernel}, level {level}");
        // Of each encrypted file two keys, and one of its directory.
        assert_eq!(found.schedules.len(), 3 + 2 * 3, "{kernel}, level {level}");
        succeeds(&["convert", "-q", "--erase", "keys", "-d", level, "-f", "elf"], &[vmcore, &after]);
        let found = search(&after, &keys).unwrap();
        assert!(found.keys.is_empty(), "{kernel}, level {level}: {:?}", found.keys);
        assert!(found.schedules.is_empty(), "{kernel}, level {level}: {:?}", found.schedules);
        // The same from a dump in kdump format, by a capture, which has another process find them.
        succeeds(&["capture", "-q", "--erase", "keys", "-d", level], &[vmcore, &dump]);
        let again = path("again");
        succeeds(&["convert", "-q", "-f", "elf"], &[&dump, &again]);
        assert!(search(&again, &keys).unwrap().keys.is_empty(), "{kernel}, level {level}");
        for erased in [&after, &dump, &again] {
            assert!(report(erased) == report(&before), "{kernel}, level {level}: {}", erased.display());
            let info: Value = serde_json::from_str(&succeeds(&["info", "--json"], &[erased])).unwrap();
            let record = info["erased"].as_str().unwrap();
            for what in [
                "key(user).payload",
                "key(logon).payload",
                "key(encrypted).payload",
                "key(asymmetric).payload",
                "crypt_config.key",
                "fscrypt_master_key.hkdf",
                "fscrypt_prepared_key.tfm",
                "wg_device.static_identity",
                "wg_peer.handshake",
                "tls_context",
                "base_crng",
            ] {
                assert!(record.contains(what), "{kernel}, level {level}: {record}");
            }
        }
    }
}

#[test]
fn no_key_of_a_guest_is_in_an_erased_dump() {
    // Its keys, and pages of processes, cgroups and files, are known.
    common::each_crash("keys", "", &["6.1", "6.12"], |kernel, vmcore| check(&vmcore, kernel));
}

/// Records of the log have the name of the task that wrote them (7.2).
#[test]
fn no_record_of_the_log_keeps_the_name_of_a_task() {
    if !lab::enabled() {
        return;
    }
    const NAME: &[u8] = b"lab-poisoned";
    // The crash that `lab validate-triage` explains.
    let config = lab::Config {
        kernel: "7.2".into(),
        cpus: 1,
        fill: 20,
        scenario: Some("oom".into()),
        ..lab::Config::default()
    };
    let vmcore = lab::crash(&config).unwrap().vmcore();
    let directory = tempfile::tempdir().unwrap();
    let names = |erase: &[&str]| {
        let dump = directory.path().join("dump");
        succeeds(&[&["convert", "-q", "--force", "-f", "elf"], erase].concat(), &[&vmcore, &dump]);
        let bytes = std::fs::read(&dump).unwrap();
        bytes.windows(NAME.len()).filter(|part| *part == NAME).count()
    };
    let before = names(&[]);
    assert!(before > 20, "{before}: it wrote many");
    // The text has it as well. What is left is the task's own memory, and memory that is free.
    let after = names(&["--erase", "log,names"]);
    assert!(after * 4 < before, "{after} of {before}");
}
