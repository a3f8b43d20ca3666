//! Records of pstore in place of a dump.

mod common {
    pub mod setup;
}

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use common::setup::Setup;
use serde_json::Value;

/// A log that ends as that of a panic: the log of the dump ends before.
fn log() -> String {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../facts/tests/data/null.6.12.log");
    fs::read_to_string(log).unwrap() + "[    6.400000] Kernel panic - not syncing: Fatal exception\n"
}

#[test]
fn facts_and_triage_read_the_records_of_a_crash() {
    let setup = Setup::small();
    let log = log();
    let lines: Vec<&str> = log.lines().collect();
    let (first, last) = lines.split_at(lines.len() / 2);
    for (part, lines) in [(2, first), (1, last)] {
        let text = format!("Panic#1 Part{part}\n<6>{}\n", lines.join("\n<6>"));
        fs::write(setup.path(&format!("dmesg-ramoops-{}", part - 1)), text).unwrap();
    }
    let records = ["dmesg-ramoops-0", "dmesg-ramoops-1"];
    let facts: Value = serde_json::from_str(&setup.succeeds(&[&["facts"], &records[..]].concat())).unwrap();
    assert_eq!(facts["crash"]["kind"], "null-deref");
    assert_eq!(facts["log"].as_array().unwrap().len(), lines.len());
    let text = setup.succeeds(&[&["triage"], &records[..]].concat());
    let signature = facts["crash"]["sig"].as_str().unwrap();
    assert!(text.contains(signature) && text.contains(facts["crash"]["title"].as_str().unwrap()), "{text}");
    let json: Value =
        serde_json::from_str(&setup.succeeds(&[&["triage", "--json"], &records[..]].concat())).unwrap();
    assert_eq!(json, facts);
    for more in [&["--stacks"][..], &["--tasks"], &["--pid", "1"], &["--section", "memory"], &["-s", "log"]] {
        let said = setup.fails(&[&["triage"], more, &records[..1]].concat(), 1);
        assert!(said.contains("pstore has only the end of the log"), "{more:?}: {said}");
    }
    // Compressed by zstd, and damaged between two lines.
    fs::write(setup.path("dmesg-ramoops-2.enc.z"), b"\x28\xb5\x2f\xfd\x60").unwrap();
    let said = setup.fails(&["facts", "dmesg-ramoops-2.enc.z"], 1);
    assert!(said.contains("LZO, LZ4, 842 and zstd, which kernels before 6.6"), "{said}");
    let text = fs::read_to_string(setup.path(records[1])).unwrap();
    fs::write(setup.path("damaged"), text.replacen("\n<6>", "\n\u{1}6>", 5)).unwrap();
    let said = setup.fails(&["facts", "damaged", records[0]], 3);
    assert!(said.contains("damaged: 4 of its lines have no level"), "{said}");
    let said = setup.fails(&["facts", records[0], "vmcore"], 1);
    assert!(said.contains("vmcore is not a record of pstore"), "{said}");
}

/// Three parts of a log that ends in a crash, by number.
fn parts() -> [String; 3] {
    let log = log();
    let lines: Vec<&str> = log.lines().collect();
    let third = lines.len().div_ceil(3);
    let mut numbers = (1..=3).rev();
    let mut parts: Vec<String> = lines
        .chunks(third)
        .map(|lines| format!("Panic#1 Part{}\n<6>{}\n", numbers.next().unwrap(), lines.join("\n<6>")))
        .collect();
    parts.reverse();
    parts.try_into().unwrap()
}

#[test]
fn what_is_missing_of_records_is_said() {
    let setup = Setup::small();
    let [one, two, three] = parts();
    let write = |name: &str, text: &str| fs::write(setup.path(name), text).unwrap();
    write("dmesg-efi-1", &one);
    write("dmesg-efi-2", &two);
    write("dmesg-efi-3", &three);
    // Nothing is missing of all parts.
    let all = ["dmesg-efi-1", "dmesg-efi-2", "dmesg-efi-3"];
    let text = setup.succeeds(&[&["triage"], &all[..]].concat());
    assert!(text.starts_with("dmesg-efi-3 and 2 more files: 6.12"), "{text}");
    assert!(!text.contains("INCOMPLETE") && !text.contains("are left out"), "{text}");
    let output = setup.run(&[&["facts"], &all[..]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said = |files: &[&str], why: &str| {
        let output = setup.run(&[&["triage"], files].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{text}");
        let second = text.lines().nth(1).unwrap_or_default();
        assert_eq!(second, format!("INCOMPLETE: {why}"), "{text}");
        assert_eq!(text.matches(why).count(), 1, "{text}");
        for command in [&["facts"][..], &["triage", "--json"]] {
            let output = setup.run(&[command, files].concat());
            assert_eq!(output.status.code(), Some(3));
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(told, format!("pagehaul: the records are incomplete: {why}\n"));
            assert!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["crash"].is_object());
        }
    };
    said(&["dmesg-efi-3", "dmesg-efi-1"], "part 2 is missing");
    write("cut", two.get(..two.len() - 10).unwrap());
    let cut = "cut: it is cut: what followed its last line is missing";
    said(&["dmesg-efi-1", "cut", "dmesg-efi-3"], cut);
    write("empty", "");
    said(&[&all[..], &["empty"]].concat(), "empty: it is damaged, or no record");
    // The name of a file forges no line.
    write("two\nlines", &one);
    let text = setup.run(&["triage", "two\nlines"]).stdout;
    assert!(String::from_utf8_lossy(&text).lines().next().unwrap().contains("lines: "));
    let output = setup.run(&["triage", "dmesg-efi-2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let unknown = "What happened: not known: the end of the log, in part 1, is missing\n";
    assert!(text.contains(unknown) && output.status.code() == Some(3), "{text}");
    write("short", "Panic");
    said(&[&["short"], &all[..]].concat(), "short: it is damaged, or no record");
    said(&[&all[..], &["short"]].concat(), "short: it is damaged, or no record");
    write("header", "Panic#1 Part1\n");
    said(&[&all[..], &["header"]].concat(), "header: it has no line of the log");
    let notice = "\nECC: 0 Corrected bytes, 2 unrecoverable blocks\n";
    write("lost", &format!("{two}{notice}"));
    let lost = "lost: its memory was damaged: 2 blocks could not be corrected";
    said(&["dmesg-efi-1", "lost", "dmesg-efi-3"], lost);
    // Records of another event are no fault.
    write("oops", "Oops#0 Part1\n<4>[    0.500000] before\n");
    let text = setup.succeeds(&[&["triage", "oops"], &all[..]].concat());
    let second = text.lines().nth(1).unwrap();
    assert_eq!(second, "oops: the records of Oops#0 are left out: they are of another event");
}

#[test]
fn records_without_a_line_of_their_crash_deny_nothing() {
    let setup = Setup::small();
    let write = |name: &str, text: &str| fs::write(setup.path(name), text).unwrap();
    let [one, two, three] = parts();
    // Cut at the end of a line.
    write("cut", "Panic#2 Part1\n<5>[    0.000000] Linux version 6.12.107+deb13-cloud-amd64 (x)\n");
    let why = "the record is of a panic, but has no line of it: lines are missing or damaged";
    let output = setup.run(&["triage", "cut"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("INCOMPLETE: {why}\n")), "{text}");
    assert!(text.contains(&format!("What happened: not known: {why}\n")), "{text}");
    let output = setup.run(&["facts", "cut"]);
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, format!("pagehaul: the records are incomplete: {why}\n"));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(facts["missing"].as_array().unwrap().iter().any(|missing| missing["reason"] == why));
    // The oops before it has what the panic lacks.
    let lines = [&three, &two, &one].map(|part| part.split_once('\n').unwrap().1.to_owned()).concat();
    write("oops", &format!("Oops#1 Part1\n{lines}"));
    let output = setup.run(&["triage", "oops", "cut"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    let why = "cut: the records of Panic#2 are left out: they are of a panic, but have no line of it: these are \
               missing or damaged";
    assert!(text.starts_with("oops: 6.12") && text.contains(&format!("INCOMPLETE: {why}\n")), "{text}");
    assert!(text.contains("What happened: null-deref") && !text.contains("another boot"), "{text}");
    // Next to a panic, records of kernels before 5.8 are those of other events.
    write("restart", "Restart#2 Part1\n<5>[   99.000000] reboot: Restarting system\n");
    let text = setup.succeeds(&["triage", "restart"]);
    assert!(text.contains("What happened: the records have no crash"), "{text}");
    for (name, part) in [("panic-1", &one), ("panic-2", &two), ("panic-3", &three)] {
        write(name, part);
    }
    let text = setup.succeeds(&["triage", "panic-1", "panic-2", "panic-3", "restart"]);
    assert!(text.contains("restart: the records of Restart#2 are left out"), "{text}");
    // What to do with too many.
    write("large", &format!("Panic#1 Part4\n{}", "<6>[    1.000000] x\n".repeat(300_000)));
    write("larger", &format!("Panic#1 Part5\n{}", "<6>[    1.000000] x\n".repeat(300_000)));
    let said = setup.fails(&["triage", "large", "larger"], 1);
    let refused = "large, larger: the records have more than 8 MiB: name the records of one crash";
    assert!(said.contains(refused), "{said}");
}

#[test]
fn of_records_of_two_boots_the_newest_are_explained_alone() {
    let setup = Setup::small();
    let write = |name: &str, text: &str, seconds: u64| {
        fs::write(setup.path(name), text).unwrap();
        let file = fs::File::options().write(true).open(setup.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    let [one, two, three] = parts();
    let old = [1, 2].map(|part| {
        let panic = "Kernel panic - not syncing: another crash";
        format!("Panic#1 Part{part}\n<0>[    {}.000000] {panic}\n", 9 - part)
    });
    write("dmesg-erst-1", &old[0], 1_000_000);
    write("dmesg-erst-2", &old[1], 1_000_000);
    write("dmesg-erst-3", &one, 2_000_000);
    write("dmesg-erst-4", &two, 2_000_000);
    write("dmesg-erst-5", &three, 2_000_001);
    let all = ["dmesg-erst-1", "dmesg-erst-2", "dmesg-erst-3", "dmesg-erst-4", "dmesg-erst-5"];
    let left_out =
        "dmesg-erst-1, dmesg-erst-2: the records of Panic#1 are left out: they are of another boot";
    let text = setup.succeeds(&[&["triage"], &all[..]].concat());
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("dmesg-erst-5 and 2 more files: 6.12"), "{text}");
    assert_eq!(lines.next(), Some(left_out), "{text}");
    let newest = setup.succeeds(&["triage", "dmesg-erst-3", "dmesg-erst-4", "dmesg-erst-5"]);
    assert_eq!(text.replace(&format!("{left_out}\n"), ""), newest);
    let output = setup.run(&[&["facts"], &all[..]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("pagehaul: {left_out}\n"));
    // A clock that was wrong does not make the older crash the newer one.
    let year_2100 = 4_102_444_800;
    write("dmesg-erst-1", &old[0], year_2100);
    let said = setup.fails(&[&["triage"], &all[2..], &["dmesg-erst-1"]].concat(), 1);
    assert!(said.contains("dmesg-erst-1: written in the future"), "{said}");
    assert!(said.contains("part 1 of Panic#1 is there twice"), "{said}");
    write("dmesg-erst-5", &three, year_2100);
    let text = setup.succeeds(&[&["triage"], &all[2..]].concat());
    assert!(text.contains("dmesg-erst-5: written in the future"), "{text}");
    write("dmesg-erst-5", &three, 2_000_001);
    // Copies that were made at once cannot be told apart.
    write("dmesg-erst-1", &old[0], 2_000_000);
    write("dmesg-erst-2", &old[1], 2_000_000);
    let said = setup.fails(&[&["triage"], &all[..]].concat(), 1);
    let refused = "dmesg-erst-1 and dmesg-erst-3: part 1 of Panic#1 is there twice, with other text: name the \
                   records of one crash";
    assert!(said.contains(refused), "{said}");
}

/// The ID of a record of EFI variables (`generic_id`, drivers/firmware/efi/efi-pstore.c).
fn efi_id(time: u64, part: u64, count: u64) -> u64 {
    (time * 100 + part) * 1000 + count
}

/// What a machine with EFI variables has: each record has the second in which it was written in its name.
struct Efi {
    /// Name, time and text of each record.
    records: Vec<(String, u64, String)>,
}

impl Efi {
    /// The records of the crash at `time`, and of the oops before it. The first two parts were written a second later than the others:
    /// `pstore_dump` writes the end of the log first, and each record has its own time.
    fn new(prefix: &str, time: u64) -> Self {
        let log = log();
        // Shorter than real ones, so that numbers of parts have two digits.
        let (mut parts, mut part) = (Vec::new(), String::new());
        for line in log.lines() {
            if part.len() > 250 {
                parts.push(std::mem::take(&mut part));
            }
            part += &format!("<6>{line}\n");
        }
        parts.push(part);
        parts.reverse();
        assert!(parts.len() > 10, "{}", parts.len());
        let mut records = Vec::new();
        for (number, text) in (1..).zip(parts) {
            let time = if number < 3 { time } else { time + 1 };
            let name = format!("dmesg-{prefix}-{}", efi_id(time, number, 2));
            records.push((name, time, format!("Panic#2 Part{number}\n{text}")));
        }
        let oops = "Oops#1 Part1\n<4>[    0.500000] Oops: 0002 [#1] PREEMPT SMP\n";
        records.push((format!("dmesg-{prefix}-{}", efi_id(time, 1, 1)), time, oops.to_owned()));
        Self { records }
    }

    /// Writes them as the kernel shows them.
    fn show(&self, directory: &std::path::Path) -> Vec<String> {
        let write = |(name, time, text): &(String, u64, String)| written(&directory.join(name), *time, text);
        self.records.iter().map(write).collect()
    }

    /// Writes them as systemd-pstore moves them, with the file that it makes of those in a directory, in reverse order of their names.
    fn keep(&self, directory: &std::path::Path) -> Vec<String> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort();
        let mut files = Vec::new();
        for (name, time, text) in records.into_iter().rev() {
            let id = name.rsplit('-').next().unwrap();
            let kept = directory.join(&id[..id.len() - 5]).join(&id[id.len() - 3..]);
            fs::create_dir_all(&kept).unwrap();
            files.push(written(&kept.join(name), *time, text));
            let whole = kept.join("dmesg.txt");
            let so_far = fs::read_to_string(&whole).unwrap_or_default();
            files.push(written(&whole, *time, &(so_far + text)));
        }
        files
    }
}

fn written(path: &std::path::Path, time: u64, text: &str) -> String {
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(time)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// 893c5f1de620 gave the records another name: that of the module.
#[test]
fn records_of_efi_variables_are_read_as_kernels_and_systemd_lay_them_out() {
    let log = log();
    for prefix in ["efi", "efi_pstore"] {
        let setup = Setup::small();
        let efi = Efi::new(prefix, 1_700_000_000);
        fs::create_dir(setup.path("shown")).unwrap();
        let shown = efi.show(&setup.path("shown"));
        let kept = efi.keep(&setup.path("kept"));
        let of_all = |files: &[String], pattern: &str| -> Vec<String> {
            files.iter().filter(|file| file.contains(pattern)).cloned().collect()
        };
        for files in [shown.clone(), kept.clone(), of_all(&kept, "dmesg.txt"), [shown, kept].concat()] {
            let facts = || [&["facts"], &files.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
            let output = setup.run(&facts());
            assert!(output.status.success(), "{prefix}: {output:?}");
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(found["crash"]["kind"], "null-deref");
            assert_eq!(found["log"].as_array().unwrap().len(), log.lines().count());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                said.contains("the records of Oops#1 are left out") && said.lines().count() == 1,
                "{said}"
            );
        }
    }
    // Without the records of one second, parts are missing.
    let setup = Setup::small();
    let kept = Efi::new("efi_pstore", 1_700_000_000).keep(&setup.path("kept"));
    let half: Vec<&str> =
        kept.iter().map(String::as_str).filter(|file| file.contains("/1700000001/")).collect();
    let output = setup.run(&[&["facts"], &half[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("parts 1 to 2 are missing"), "{output:?}");
}
