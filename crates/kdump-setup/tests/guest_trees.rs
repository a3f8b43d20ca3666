//! The same faults in copies of real guests' files, which the lab makes (`tools/lab/kdump-tools/snapshot.sh`).

mod machine;
mod table;

use std::fs;
use std::path::Path;

use machine::Machine;
use pagehaul_kdump_setup::{Chain, Expected, Link, Severity, State, examine};
use table::{Edits, applies, faults};

/// Names a directory of directories with the files of a machine each.
const TREES: &str = "PAGEHAUL_GUEST_TREES";

fn copy(tree: &Path) -> Machine {
    let machine = Machine::copy_of(tree);
    // The lab's guests start without one.
    machine.add_boot_loader();
    machine
}

fn chain(machine: &Machine) -> Chain {
    examine(&machine.facts(), &Expected::default())
}

/// Each finding once.
fn ids(chain: &Chain) -> Vec<&'static str> {
    let mut ids: Vec<_> = chain.findings.iter().map(|finding| finding.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[test]
#[ignore = "needs copies of guests' files: PAGEHAUL_GUEST_TREES"]
fn each_fault_is_the_only_new_finding_in_a_copy_of_a_guest() {
    let trees = std::env::var(TREES).expect(TREES);
    let mut trees: Vec<_> = fs::read_dir(trees).unwrap().map(|entry| entry.unwrap().path()).collect();
    trees.sort();
    assert!(!trees.is_empty(), "no trees");
    for tree in trees {
        check(&tree);
    }
}

fn check(tree: &Path) {
    let name = tree.file_name().unwrap().to_str().unwrap();
    let machine = copy(tree);
    let (facts, healthy) = (machine.facts(), chain(&machine));
    let serious = healthy.findings.iter().filter(|finding| finding.severity != Severity::Advice);
    assert_eq!(serious.count(), 0, "{name}: {:?}", healthy.findings);
    let before = ids(&healthy);
    let (mut count, mut left_out, mut wrong) = (0, Vec::new(), Vec::new());
    for (number, (id, inject)) in faults(facts.stack().unwrap()).into_iter().enumerate() {
        if !applies(id, &facts, &before) {
            left_out.push(id);
            continue;
        }
        let machine = copy(tree);
        inject(&machine);
        let chain = chain(&machine);
        let mut found = ids(&chain);
        found.retain(|id| !before.contains(id));
        // Programs such as xz unpack images of this machine alone.
        let initramfs = chain.proofs.iter().find(|proof| proof.link == Link::Initramfs);
        if id == "damaged-initramfs" && initramfs.is_some_and(|proof| proof.state == State::NotChecked) {
            left_out.push(id);
            continue;
        }
        if found != [id] {
            wrong.push(format!("fault {number}, {id}: {found:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    println!(
        "ok   {name}: {count} faults found in a copy of the guest's files, each alone; left out: {}",
        left_out.join(" ")
    );
}
