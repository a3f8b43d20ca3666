//! What `make demo` installs on a bare Debian 12.
//!
//! Reads Debian's package lists, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use std::path::Path;
use std::process::Command;

use lab::apt::Apt;

/// On 2026-11-23 the demo installed 59 packages and 226 MiB, most of it the C compiler that Rust needs as well. Before it had
/// its own set-up, it installed 133 packages and 1.1 GB.
const MAX_PACKAGES: usize = 75;
const MAX_MIB: u64 = 260;

#[test]
fn the_demo_installs_a_c_compiler_and_python_only() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to read Debian's package lists");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup.sh");
    let output = Command::new("sh").arg(script).args(["--print", "demo"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let asked: Vec<&str> = printed.lines().collect();
    assert_eq!(asked, ["gcc", "libc6-dev", "python3", "python3-venv"]);
    let apt = Apt::new(&["bookworm"], false).unwrap();
    // README asks for these before.
    let there = ["git", "make"];
    let had = apt.closure(&there).unwrap();
    let mut added = apt.closure(&[&asked[..], &there].concat()).unwrap();
    added.retain(|package, _| !had.contains_key(package));
    let mib = added.values().sum::<u64>() >> 10;
    eprintln!("{} packages, {mib} MiB", added.len());
    assert!(added.len() <= MAX_PACKAGES && mib <= MAX_MIB, "{mib} MiB: {:?}", added.keys());
}
