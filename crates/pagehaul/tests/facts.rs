//! What identifies a crash is the same in all of its dumps.

#[path = "common/setup.rs"]
mod setup;

use pagehaul_synth::{Era, Machine, Message};
use serde_json::Value;
use setup::Setup;

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
