//! Power cuts and kills of captures in a capture kernel leave a valid dump or one that says it is not.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::power;
use std::process::Command;

#[test]
fn whatever_a_power_cut_leaves_is_never_silently_wrong() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    // The look at the images is that of the program this workspace builds.
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
    let seen = power::validate("6.12", program.as_ref()).unwrap();
    assert!(seen.incomplete > 0, "no cut fell into a capture: {seen:?}");
    assert!(seen.complete > 0, "no cut fell between captures: {seen:?}");
}
