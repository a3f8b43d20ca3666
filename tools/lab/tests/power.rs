//! Power cuts and kills of captures in a capture kernel leave a valid dump, one marked incomplete, or none.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::power;

#[test]
fn power_cuts_leave_no_wrong_dump() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    // The pagehaul of this workspace inspects the images.
    let program = lab::build::pagehaul_of_tests().unwrap();
    let counts = power::validate("6.12", &program).unwrap();
    assert!(counts.incomplete > 0, "no cut hit a capture: {counts:?}");
    assert!(counts.complete > 0, "no cut came between captures: {counts:?}");
}
