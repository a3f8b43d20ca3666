//! Crashes in pstore have the kind and signature that their whole log has.

use std::path::Path;

use pagehaul_facts::{Crash, Facts, PstoreFile, lines_of_text};

/// Divides a log into records of at most `bytes` of whole lines, as `pstore_dump` does: the first has the end.
fn records(log: &str, bytes: usize) -> Vec<Vec<u8>> {
    let mut parts: Vec<String> = vec![String::new()];
    for line in log.lines().rev() {
        let last = parts.last_mut().unwrap();
        if !last.is_empty() && last.len() + line.len() > bytes {
            parts.push(format!("{line}\n"));
        } else {
            last.insert_str(0, &format!("{line}\n"));
        }
    }
    let with_header =
        |(index, part): (usize, String)| format!("Panic#1 Part{}\n{part}", index + 1).into_bytes();
    parts.into_iter().enumerate().map(with_header).collect()
}

#[test]
fn crashes_in_records_of_any_size_are_those_of_the_log() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut crashes = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let log = std::fs::read_to_string(&path).unwrap();
        // Of a log as text, the ends of lines are not known.
        let log = log.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let expected = Crash::find(&lines_of_text(&log)).unwrap();
        for bytes in [900, 4000, 60_000] {
            let files: Vec<PstoreFile> = records(&log, bytes).into_iter().rev().map(Into::into).collect();
            let facts = Facts::from_pstore(&files, "test".into()).unwrap().facts;
            assert_eq!(facts.crash.as_ref(), Some(&expected), "{}, {bytes} bytes", path.display());
            let json = serde_json::to_vec(&facts).unwrap();
            assert_eq!(Facts::from_stored(&json).unwrap(), facts);
        }
        crashes += 1;
    }
    assert!(crashes >= 30);
}

#[test]
fn a_record_of_a_real_kernel_has_the_signature_of_the_dump() {
    // An oops that did not panic, in a guest of the lab with pstore_blk; the log is of a dump of the same bug.
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let record = std::fs::read(tests.join("pstore/null.6.12.dmesg-pstore_blk-0")).unwrap();
    let facts = Facts::from_pstore(&[record.into()], "test".into()).unwrap().facts;
    let crash = facts.crash.unwrap();
    let log = std::fs::read_to_string(tests.join("data/null.6.12.log")).unwrap();
    let of_dump = Crash::find(&lines_of_text(&log)).unwrap();
    assert_eq!(crash.signature, of_dump.signature);
    assert_eq!(crash.title, of_dump.title);
    assert_eq!(facts.release.as_deref(), Some("6.12.107+deb13-cloud-amd64"));
    assert_eq!(facts.log.len(), 455);
    assert_eq!((facts.log[0].level, facts.log[0].time_ns), (5, 0));
}

#[test]
fn records_that_a_real_kernel_did_not_decompress_are_joined() {
    // Of a guest of the lab with ACPI ERST, as its capture kernel found them.
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pstore");
    let part = |number: u32| -> PstoreFile {
        std::fs::read(tests.join(format!("sysrq.6.12.dmesg-erst-{number}.enc.z"))).unwrap().into()
    };
    let facts = Facts::from_pstore(&[part(2), part(1), part(3)], "test".into()).unwrap().facts;
    assert_eq!(facts.log.len(), 476);
    assert!(facts.log.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    assert_eq!(facts.log[0].time_ns, 0);
    let crash = facts.crash.unwrap();
    assert_eq!(crash.panic.as_deref(), Some("sysrq triggered crash"));
    assert_eq!(facts.release.as_deref(), Some("6.12.107+deb13-cloud-amd64"));
    assert!(facts.missing.iter().all(|missing| !missing.reason.contains("part")), "{:?}", facts.missing);
}
