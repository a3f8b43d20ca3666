//! What identifies a crash is the same in all of its dumps.

mod common {
    pub mod setup;
}

use common::setup::Setup;
use pagehaul_synth::{Era, Machine, Message};
use serde_json::Value;

/// A machine that oopsed and panicked.
fn crashed() -> Setup {
    let lines = [
        "Linux version 6.12.0",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "CPU: 0 UID: 0 PID: 7 Comm: insmod Tainted: G           OE      6.12.0 #1",
        "RIP: 0010:demo_fill.constprop.0+0x5/0x40 [demo]",
        "Call Trace:",
        " demo_store+0x11/0x20 [demo]",
        "Kernel panic - not syncing: Fatal exception",
    ];
    let message =
        |(at, text)| Message { nanoseconds: (at as u64 + 1) * 1_000_000, level: 1, caller: 7, text };
    let messages: Vec<Message> = lines.into_iter().enumerate().map(message).collect();
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000).log(0x6000, &messages);
    Setup::new(&mut machine)
}

#[test]
fn a_crash_has_one_id_and_one_signature_in_every_format() {
    let setup = crashed();
    let described = |name: &str| -> Value {
        let info: Value = serde_json::from_str(&setup.succeeds(&["info", "--json", name])).unwrap();
        serde_json::json!([info["crash_id"], info["crash"]])
    };
    let raw = described("vmcore");
    assert_eq!(raw[0].as_str().unwrap().len(), 32);
    assert_eq!(raw[1]["title"], "null-deref in demo:demo_fill");
    for (name, options) in [
        ("dump", &["-d", "31"][..]),
        ("lzo", &["-c", "lzo", "-d", "1"]),
        ("flat", &["--format", "flattened"]),
        ("elf", &["--format", "elf"]),
    ] {
        setup.succeeds(&[&["capture", "-q", "vmcore", name], options].concat());
        assert_eq!(described(name), raw, "{name}");
    }
}

#[test]
fn a_capture_writes_the_facts_that_its_dump_has() {
    let setup = crashed();
    setup.succeeds(&["capture", "-q", "vmcore", "plain"]);
    setup.succeeds(&["capture", "-q", "--facts", "vmcore", "dump"]);
    assert_eq!(std::fs::read(setup.path("plain")).unwrap(), std::fs::read(setup.path("dump")).unwrap());
    let frame = std::fs::read(setup.path("dump.facts.json.zst")).unwrap();
    let mut text = Vec::new();
    pagehaul_codec::FrameDecompressor::new().unwrap().decompress(&frame, &mut text, 1 << 20).unwrap();
    let facts: Value = serde_json::from_slice(&text).unwrap();
    let of_dump: Value = serde_json::from_str(&setup.succeeds(&["facts", "dump"])).unwrap();
    // Facts print facts, compressed or not, under any name.
    std::fs::write(setup.path("facts"), &text).unwrap();
    for stored in ["dump.facts.json.zst", "facts"] {
        assert_eq!(
            serde_json::from_str::<Value>(&setup.succeeds(&["facts", stored])).unwrap(),
            facts,
            "{stored}"
        );
    }
    assert_eq!(facts, of_dump);
    assert_eq!(facts["schema_version"], 1);
    assert_eq!(facts["crash"]["kind"], "null-deref");
    assert!(facts["crash"]["text"].as_str().unwrap().contains("demo_store+0x11/0x20 [demo]"));
    assert_eq!(facts["log"].as_array().unwrap().len(), 7);
    assert_eq!(facts["log"][6]["text"], "Kernel panic - not syncing: Fatal exception");
}

#[test]
fn facts_that_cannot_be_made_or_written_change_nothing_about_the_dump() {
    let setup = crashed();
    setup.succeeds(&["capture", "-q", "vmcore", "plain"]);
    std::fs::create_dir(setup.path("taken.facts.json.zst")).unwrap();
    for (options, output, said) in
        [("--facts=0s", "none", "its time budget is 0"), ("--facts", "taken", "taken.facts.json.zst")]
    {
        let run = setup.run(&["capture", options, "vmcore", output]);
        let text = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        assert!(
            run.status.success() && text.contains("no facts next to the dump: ") && text.contains(said),
            "{text}"
        );
        assert_eq!(std::fs::read(setup.path("plain")).unwrap(), std::fs::read(setup.path(output)).unwrap());
    }
}
