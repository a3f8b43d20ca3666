//! Erases the keys of a guest, and searches its dumps for them.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::succeeds;
use lab::owned::{self, Luks};
use lab::secrets::{Hits, search};
use lab::{Crash, oracle};
use lab_guest::secrets::Secret;
use serde_json::Value;

/// The known keys, and behind them the volume key of the disk that cryptsetup made.
fn keys(crash: &Crash) -> Vec<Vec<u8>> {
    let bytes = |secret: &Secret| {
        let mut bytes = vec![0; secret.len()];
        secret.fill(&mut bytes);
        bytes
    };
    Secret::ALL.iter().map(bytes).chain([Luks::of(crash).unwrap().key]).collect()
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

fn check(crash: &Crash, kernel: &str) {
    let vmcore = &*crash.vmcore();
    let keys = keys(crash);
    let volume = Secret::ALL.len();
    // The table names a key of the process that opened the disk, which has ended.
    let luks = Luks::of(crash).unwrap();
    assert!(luks.table.contains(":64:logon:cryptsetup:") && luks.key.len() == 64, "{kernel}: {}", luks.table);
    let directory = tempfile::tempdir().unwrap();
    for level in ["0", "31"] {
        let path = |name: &str| directory.path().join(format!("{name}-{level}"));
        let (before, after, dump) = (path("before"), path("after"), path("dump"));
        succeeds(&["convert", "-q", "-d", level, "-f", "elf"], &[vmcore, &before]);
        let found = search(&before, &keys).unwrap();
        // Of the master key of a file system the kernel keeps only what it derives others from.
        let kept = |index: &usize| Secret::ALL.get(*index) != Some(&Secret::FileSystem);
        let expected: BTreeSet<usize> = (0..keys.len()).filter(kept).collect();
        assert_eq!(found.keys, expected, "{kernel}, level {level}");
        // In the keyring that cryptsetup was told. dm-crypt overwrites its copy of a key that a keyring has, and keeps what AES made of it.
        assert!(found.copies[&volume] >= 1, "{kernel}, level {level}: {:?}", found.copies);
        // Of each disk two keys, and one of TLS.
        assert_eq!(schedules(&found, &keys).len(), 2 * 2 + 1, "{kernel}, level {level}");
        assert_eq!(schedules(&found, &keys[volume..]).len(), 2, "{kernel}, level {level}");
        // Of each encrypted file two keys, and one of its directory.
        assert_eq!(found.schedules.len(), 5 + 2 * 3, "{kernel}, level {level}");
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
                // That of the scenario, of a file, of the LUKS disk.
                "key(logon).payload size 200 in 3 places",
                "key(encrypted).payload",
                "key(asymmetric).payload",
                // IMA has no policy.
                "ima_key_entry.payload",
                "crypt_config.key size 128 in 2 places",
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
    common::each_crash([&["6.12"], &["6.1", "6.12"]], owned::with_keys, |kernel, crash| check(crash, kernel));
}

/// drgn's script that prints the key of a disk: contrib/dm_crypt_key.py of <https://github.com/osandov/drgn>.
const SCRIPT: &str = "PAGEHAUL_DM_CRYPT_KEY";

fn check_with_drgn(script: &Path, crash: &Crash, kernel: &str) {
    let directory = tempfile::tempdir().unwrap();
    let luks = Luks::of(crash).unwrap();
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let [first, second] = luks.key.as_chunks::<32>().0 else { panic!("{luks:?}") };
    let halves = [first, second].map(|half| hexadecimal(half));
    let symbols = crash.debug_info().unwrap();
    let mut files = vec![symbols.vmlinux];
    files.extend(std::fs::read_dir(symbols.modules).unwrap().map(|entry| entry.unwrap().path()));
    // Its standard output, and its errors.
    let prints = |dump: &Path| {
        let mut drgn = Command::new(oracle::python().unwrap());
        drgn.args(["-m", "drgn", "-q", "-c"]).arg(dump);
        for file in &files {
            drgn.arg("-s").arg(file);
        }
        let output = drgn.arg(script).arg(&luks.device).output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    for level in ["0", "31"] {
        let [before, after] =
            ["before", "after"].map(|name| directory.path().join(format!("{name}-{level}")));
        succeeds(&["convert", "-q", "-d", level], &[&crash.vmcore(), &before]);
        let [printed, said] = prints(&before);
        assert_eq!(printed.lines().collect::<Vec<_>>(), halves, "{kernel}, level {level}: {said}");
        succeeds(&["convert", "-q", "--erase", "keys", "-d", level], &[&crash.vmcore(), &after]);
        let [printed, said] = prints(&after);
        // It gets as far, and finds what it was erased with, or a length that makes no sense.
        eprintln!("{kernel}, level {level}, erased: {} {}", printed.trim(), said.trim());
        assert!(halves.iter().all(|half| !printed.contains(half)), "{kernel}, level {level}: {printed}");
    }
}

#[test]
fn drgns_script_prints_no_key_of_an_erased_dump() {
    let Some(script) = std::env::var_os(SCRIPT) else {
        eprintln!("skipped: {SCRIPT} names drgn's contrib/dm_crypt_key.py, which has another licence");
        return;
    };
    let all = ["6.1", "6.12"];
    common::each_crash([&all, &all], owned::with_keys, |kernel, crash| {
        check_with_drgn(Path::new(&script), crash, kernel);
    });
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
