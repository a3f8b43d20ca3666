//! The guide's commands from a crash to a report, with an object store.

use std::path::Path;
use std::process::Command;

use pagehaul_synth::{Era, Inside, Machine, Message};
use pagehaul_test_support::guide;

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");

/// Runs the commands as they are written, with a store that has a bucket `crashes`.
pub fn from_a_crash_to_a_report(endpoint: &str, id: &str, secret: &str) {
    let fleet = Path::new(BINARY).with_file_name("pagehaul-fleet");
    assert!(fleet.exists(), "run `cargo build -p pagehaul-fleet` first, or test the whole workspace");
    let directory = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(Era::V6_12);
    let text = "Kernel panic - not syncing: sysrq triggered crash";
    machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
    machine.inside(0x5000, &Inside { clock: 60, free: 1 << 17, ..Inside::default() });
    machine.build().elf().write(&directory.path().join("vmcore")).unwrap();
    let programs = fleet.parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut told = Vec::new();
    for block in guide::blocks().iter().filter(|block| block.needs == "bucket") {
        for line in block.script.lines() {
            let output = Command::new("sh")
                .args(["-e", "-c", line])
                .current_dir(directory.path())
                .env("PATH", &path)
                .env("HOME", directory.path())
                .env("NO_PROXY", "127.0.0.1")
                .env("AWS_EC2_METADATA_DISABLED", "true")
                .env("AWS_ENDPOINT_URL", endpoint)
                .env("AWS_ACCESS_KEY_ID", id)
                .env("AWS_SECRET_ACCESS_KEY", secret)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {errors}");
            assert!(!errors.contains(secret) && !errors.contains("Signature="), "{line}: {errors}");
            told.push(String::from_utf8(output.stdout).unwrap());
        }
    }
    assert_eq!(told.len(), 4);
    assert!(told[1].contains("sysrq") && told[2].contains("1 dumps of 1 crashes"), "{told:?}");
    assert!(told[3].contains("requested"), "{}", told[3]);
}
