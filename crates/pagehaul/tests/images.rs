//! Images of memory on the command line: every command that reads dumps takes them.

mod common {
    pub mod image;
    pub mod setup;
}

use common::image;
use std::fs;

use common::setup::Setup;
use pagehaul_synth::note;
use serde_json::Value;

const RAW: [&str; 2] = ["--layout=flat", "memory"];

fn setup() -> Setup {
    let setup = Setup::crashed();
    image::write(&setup.image, &setup.path("memory"), &setup.path("memory.lime"));
    // Its CPUs left no registers in memory.
    let mut elf = setup.image.elf();
    elf.notes = note("VMCOREINFO", 0, setup.image.vmcoreinfo().as_bytes());
    elf.write(&setup.path("vmcore")).unwrap();
    setup
}

#[test]
fn commands_say_of_images_what_they_say_of_the_vmcore() {
    let setup = setup();
    for command in [&["triage", "--json"][..], &["dmesg"], &["read", "--phys", "0x4000000"]] {
        let expected = setup.succeeds(&[command, &["vmcore"]].concat());
        assert_eq!(setup.succeeds(&[command, &RAW].concat()), expected, "{command:?}");
        assert_eq!(setup.succeeds(&[command, &["memory.lime"]].concat()), expected, "{command:?}");
    }
    let virt = format!("{:#x}", setup.image.text().0);
    let text = |dump: &[&str]| setup.succeeds(&[&["read", "--virt", &virt], dump].concat());
    assert_eq!(text(&RAW), text(&["vmcore"]));
    let pages = |dump: &[&str]| -> Value {
        serde_json::from_str(&setup.succeeds(&[&["pages", "--json"], dump].concat())).unwrap()
    };
    assert_eq!(pages(&["memory.lime"])["classes"], pages(&["vmcore"])["classes"]);
    assert!(setup.succeeds(&[&["verify"][..], &RAW].concat()).contains("readable"));
}

#[test]
fn a_snapshot_of_cloud_hypervisor_has_its_layout_next_to_it() {
    let setup = setup();
    // The second range comes first in the file.
    let memory = fs::read(setup.path("memory")).unwrap();
    let (low, high) = memory.split_at(0x20_0000);
    fs::write(setup.path("memory-ranges"), [high, low].concat()).unwrap();
    let ranges = serde_json::json!({ "memory_ranges": { "data": [
        { "gpa": low.len(), "length": high.len() },
        { "gpa": 0, "length": low.len() },
    ] } });
    let of_memory = serde_json::json!({ "snapshot_data": { "state": ranges.to_string() } });
    let state = serde_json::json!({ "snapshots": { "memory-manager": of_memory } });
    fs::write(setup.path("state.json"), state.to_string()).unwrap();
    let expected = setup.succeeds(&["triage", "--json", "vmcore"]);
    assert_eq!(setup.succeeds(&["triage", "--json", "--layout", "state.json", "memory-ranges"]), expected);
    fs::write(setup.path("state.json"), "{}").unwrap();
    let said = setup.fails(&["info", "--layout=state.json", "memory-ranges"], 1);
    assert!(said.contains("state.json: no ranges of memory are in it"), "{said}");
    let said = setup.fails(&["info", "--layout=none.json", "memory-ranges"], 2);
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn info_names_the_format_and_where_vmcoreinfo_was() {
    let setup = setup();
    for (dump, format) in [(&RAW[..], "raw image of memory"), (&["memory.lime"], "image of memory by LiME")] {
        let found: Value =
            serde_json::from_str(&setup.succeeds(&[&["info", "--json"], dump].concat())).unwrap();
        assert_eq!(found["format"], format);
        assert_eq!(found["machine"], "x86_64");
        let remark = found["remarks"][0].as_str().unwrap();
        assert!(remark.contains("VMCOREINFO is from memory, at 0x3000018"), "{remark}");
        let vmcore: Value = serde_json::from_str(&setup.succeeds(&["info", "--json", "vmcore"])).unwrap();
        for key in ["release", "crash_time", "kaslr_offset", "build_id"] {
            assert_eq!(found[key], vmcore[key], "{key}");
        }
    }
    assert!(setup.succeeds(&["info", "memory.lime"]).contains("remark        VMCOREINFO is from memory"));
}

#[test]
fn dumps_of_images_describe_themselves() {
    let setup = setup();
    setup.succeeds(&["convert", "-q", "--layout", "flat", "memory", "converted"]);
    let output = setup.run(&["capture", "--triage", "--facts", "--layout=flat", "memory", "captured"]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("VMCOREINFO is from memory"), "{said}");
    let report = setup.succeeds(&["triage", "--json", "vmcore"]);
    for dump in ["converted", "captured"] {
        assert_eq!(setup.succeeds(&["triage", "--json", dump]), report, "{dump}");
    }
    // Other processes made these, with the same layout.
    assert!(fs::read_to_string(setup.path("captured.triage")).unwrap().contains("sysrq triggered crash"));
    assert!(setup.path("captured.facts.json.zst").exists());
    assert_ne!(setup.is_complete("captured"), Some(false));
}

#[test]
fn what_cannot_be_opened_is_one_sentence_with_what_helps() {
    let setup = setup();
    let said = setup.fails(&["info", "memory"], 1);
    assert!(said.contains("--layout") && said.lines().count() == 1, "{said}");
    let said = setup.fails(&["info", "--layout=100000-", "memory"], 1);
    assert!(said.contains("no VMCOREINFO fits") && said.contains("--layout"), "{said}");
    let said = setup.fails(&["info", "--layout=flat", "memory", "vmcore"], 1);
    assert!(said.contains("--layout is for one raw image"), "{said}");
    let said = setup.fails(&["info", "--layout=tall", "memory"], 2);
    assert!(said.contains("START-END@OFFSET"), "{said}");
    for (start, advice) in
        [("LibvirtQemudSave", "--memory-only"), ("QEVM", "dump-guest-memory"), ("AVML", "avml-convert")]
    {
        fs::write(setup.path("other"), format!("{start}{}", "\0".repeat(100))).unwrap();
        let said = setup.fails(&["info", "other"], 1);
        assert!(said.contains(advice), "{said}");
    }
    fs::write(setup.path("zeros"), vec![0; 1 << 20]).unwrap();
    let said = setup.fails(&["triage", "--layout=flat", "zeros"], 1);
    assert!(said.contains("no VMCOREINFO (a text that begins with OSRELEASE=)"), "{said}");
}
