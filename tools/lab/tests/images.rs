//! Reads images of a guest's memory that its host saved while its capture kernel ran: they explain the crash as its vmcore does.
//!
//! Boots a virtual machine, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use lab::{Config, Crash};
use serde_json::Value;

/// Runs pagehaul and returns its standard output and what it says of other kernels.
fn pagehaul(arguments: &[&str], layout: Option<&str>, file: &Path) -> (String, String) {
    let mut command = Command::new(lab::build::pagehaul_of_tests().unwrap());
    command.args(arguments).args(layout.map(|layout| format!("--layout={layout}"))).arg(file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", file.display());
    (String::from_utf8(output.stdout).unwrap(), said)
}

/// Writes the ranges of a raw image as LiME does.
fn write_lime(raw: &Path, ranges: &[(u64, u64)], to: &Path) {
    let (mut raw, mut lime) = (File::open(raw).unwrap(), File::create(to).unwrap());
    for &(start, end) in ranges {
        let mut header = Vec::new();
        header.extend(0x4c69_4d45_u32.to_le_bytes());
        header.extend(1_u32.to_le_bytes());
        header.extend(start.to_le_bytes());
        header.extend((end - 1).to_le_bytes());
        header.extend([0; 8]);
        lime.write_all(&header).unwrap();
        raw.seek(SeekFrom::Start(start)).unwrap();
        std::io::copy(&mut Read::by_ref(&mut raw).take(end - start), &mut lime).unwrap();
    }
}

/// Compares what is known of the crash by its images with what is known by its vmcore.
fn compare(crash: &Crash, images: &[(&str, &Path, Option<&str>)]) {
    let facts = |json: &str| {
        let mut facts: Value = serde_json::from_str(json).unwrap();
        // The vmcore lacks the memory of the capture kernel.
        facts.as_object_mut().unwrap().remove("memory_bytes").unwrap();
        facts
    };
    let vmcore = crash.vmcore();
    let (report, said) = pagehaul(&["triage", "--json", "--tasks", "--stacks"], None, &vmcore);
    assert_eq!(said, "");
    let (log, _) = pagehaul(&["dmesg"], None, &vmcore);
    let of_crash = facts(&pagehaul(&["facts"], None, &vmcore).0);
    assert_eq!(of_crash["id_weak"], false);
    for (what, image, layout) in images {
        let (found, said) = pagehaul(&["triage", "--json", "--tasks", "--stacks"], *layout, image);
        assert!(said.contains("VMCOREINFO is from memory"), "{what}: {said}");
        assert!(said.contains("memory also has the kernel"), "{what}: {said}");
        assert!(found == report, "{what}: {} has another report than {}", image.display(), vmcore.display());
        assert!(pagehaul(&["dmesg"], *layout, image).0 == log, "{what}: the logs differ");
        assert_eq!(facts(&pagehaul(&["facts"], *layout, image).0), of_crash, "{what}");
    }
}

#[test]
fn images_by_the_host_explain_a_crash_as_its_vmcore_does() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let config = Config { images: true, ..Config::default() };
    let crash = lab::crash(&config).unwrap();
    let images = crash.images();
    let directory = tempfile::tempdir().unwrap();
    let lime = directory.path().join("lime");
    let end = config.memory_mib << 20;
    write_lime(&images.raw(), &[(0, 0xa_0000), (0x10_0000, end)], &lime);
    // As a virtual machine monitor with all memory in one file would have it.
    compare(
        &crash,
        &[
            ("raw", &images.raw(), Some("flat")),
            ("firecracker", &images.raw(), Some("firecracker")),
            ("ELF", &images.elf(), None),
            ("kdump", &images.kdump(), None),
            ("LiME", &lime, None),
        ],
    );
    // Of a machine that runs, as of one that hangs, QEMU has the registers.
    let before = images.before();
    let running = |layout, file: &Path| -> Value {
        let (report, said) = pagehaul(&["triage", "--json", "--tasks"], layout, file);
        assert!(said.contains("VMCOREINFO is from memory") && !said.contains("also has"), "{said}");
        serde_json::from_str(&report).unwrap()
    };
    let (raw, elf) = (running(Some("flat"), &before.raw()), running(None, &before.elf()));
    assert_eq!(running(None, &before.kdump()), elf);
    for key in ["tasks", "memory", "modules", "log", "system"] {
        assert_eq!(raw[key], elf[key], "{key}");
    }
    assert!(raw["death"]["kind"].is_null() && elf["tasks"].as_array().unwrap().len() > 30);
    let registers = |report: &Value| -> Vec<bool> {
        let cpus = report["cpus"].as_array().unwrap().iter();
        cpus.map(|cpu| cpu["saved_registers"].as_bool().unwrap()).collect()
    };
    assert_eq!((registers(&raw), registers(&elf)), (vec![false; 2], vec![true; 2]));
    // A dump of an image describes itself.
    let dump = directory.path().join("dump");
    let output = Command::new(lab::build::pagehaul_of_tests().unwrap())
        .args(["capture", "-q", "--layout=flat"])
        .args([&images.raw(), &dump])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = |file: &Path| pagehaul(&["triage", "--json"], None, file);
    assert_eq!(report(&dump), report(&crash.vmcore()));
}
