//! Runs the guide's commands on tables of crashes.

mod common;

use pagehaul_test_support::guide;
use std::fs;
use std::process::Command;

use common::{OOPS, facts, machine};
use pagehaul_synth::Era;

#[test]
fn every_command_on_tables_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pagehaul-fleet"), path("bin/pagehaul-fleet")).unwrap();
    for (host, era) in [("web1", Era::V6_12), ("web2", Era::V6_1)] {
        fs::create_dir_all(path(host)).unwrap();
        let image = machine(era, "billing", &OOPS).build();
        image.elf().write(&path(host).join("dump")).unwrap();
        fs::write(path(host).join("dump.facts.json"), facts(1, "6.12", host, 1_793_491_200, "demo_fill"))
            .unwrap();
        for (at, part) in image.kdump().parts(2).into_iter().enumerate() {
            fs::write(path(host).join(format!("part.{at}")), part).unwrap();
        }
    }
    fs::write(path("key"), "a secret of this site").unwrap();
    for (name, text) in files_of_the_guide() {
        fs::write(path(&name), text).unwrap();
    }
    let search = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap());
    let mut commands = 0;
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/guest-6.12.pht");
    fs::copy(recording, path("reclaim.pht")).unwrap();
    for block in guide::blocks().into_iter().filter(|block| block.needs == "fleet") {
        let output = Command::new("sh")
            .args(["-e", "-c", &block.script])
            .current_dir(directory.path())
            .env("PATH", &search)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}{}", block.script, String::from_utf8_lossy(&output.stderr));
        commands += block.script.lines().count();
    }
    assert!(commands >= 8, "{commands}");
}

/// The files whose contents the chapter shows, in the block after their names.
fn files_of_the_guide() -> Vec<(String, String)> {
    let text = fs::read_to_string(guide::directory().join("fleet.md")).unwrap();
    let file = |name: &str, fence: &str| {
        let (_, rest) = text.split_once(&format!("`{name}`")).unwrap();
        let (_, rest) = rest.split_once(&format!("```{fence}\n")).unwrap();
        (name.to_owned(), rest.split_once("```").unwrap().0.to_owned())
    };
    vec![file("bugs.toml", "toml"), file("hours.csv", "csv"), file("hosts.csv", "csv")]
}
