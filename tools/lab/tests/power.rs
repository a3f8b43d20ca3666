//! Power cuts and kills of captures in a capture kernel leave a valid dump, one marked incomplete, or none.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::power;
use std::process::Command;

#[test]
fn power_cuts_leave_no_wrong_dump() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    // The pagehaul of this workspace inspects the images.
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "pagehaul", "--message-format", "json"])
        .current_dir(workspace)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&built.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program =
        messages.filter_map(|m| m.get("executable")?.as_str().map(str::to_owned)).next_back().unwrap();
    let counts = power::validate("6.12", program.as_ref()).unwrap();
    assert!(counts.incomplete > 0, "no cut hit a capture: {counts:?}");
    assert!(counts.complete > 0, "no cut came between captures: {counts:?}");
}
