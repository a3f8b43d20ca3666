//! What is said of a machine whose memory is of unknown size.

mod machine;

use machine::Machine;
use pagehaul_kdump_setup::{Chain, Expected, Link, State, examine};

fn chain(machine: &Machine) -> Chain {
    examine(&machine.facts(), &Expected::default())
}

/// The header of `kdump check` says so as well.
#[test]
fn whether_a_dump_fits_is_not_checked_where_memory_is_of_unknown_size() {
    let absurd = "MemTotal: 99999999999999999999 kB\nMemFree: 18446744073709551615 kB\nAnonPages: 18446744073709551615 kB\n";
    for text in ["", "MemTotal: 8000000 kB\n", "MemTotal: 8 kB\nMemFree: 7000000 kB\n", absurd] {
        for machine in [Machine::debian(), Machine::fedora(), Machine::suse()] {
            machine.write("/proc/meminfo", text);
            let proofs = chain(&machine).proofs;
            let proof = proofs.iter().find(|proof| proof.link == Link::Target).unwrap();
            assert_eq!(proof.state, State::NotChecked, "{text}");
            assert!(!proof.evidence.iter().any(|seen| seen.contains("the kernel has")), "{proof:?}");
            machine.write("/sys/kernel/kexec_crash_size", "0\n");
            assert!(!format!("{:?}", chain(&machine)).contains(" 0M\""), "{text}");
        }
    }
}
