//! Compares the stamped pages of a vmcore with the guest's manifest.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::class::Class;
use lab::stamp::{Stamp, StampCheck, identify};
use lab::vmcore::Vmcore;
use lab::{Architecture, Config, Crash, kernels};
use std::collections::BTreeMap;

/// Classes that are not stamped, or whose stamps are not page-aligned.
const WITHOUT_STAMPS: [Class; 3] = [Class::AnonZero, Class::Offline, Class::Message];

fn check(crash: &Crash) {
    let vmcore = Vmcore::open(&crash.vmcore()).unwrap();
    let mut page = [0; 4096];
    for filled in &crash.manifest().classes {
        let mut wrong = 0;
        for (pfn, sequence) in filled.pages() {
            assert!(
                vmcore.page(pfn, &mut page).unwrap(),
                "{} page {pfn:#x} is not in the vmcore",
                filled.class
            );
            let right = match filled.class {
                Class::AnonZero => page.iter().all(|byte| *byte == 0),
                class => identify(&page) == StampCheck::Intact(Stamp { class, sequence }),
            };
            wrong += u64::from(!right);
        }
        // Freed pages may have been reused before the panic; no others may have changed.
        let allowed = if filled.class == Class::Free { filled.count / 4 } else { 0 };
        assert!(
            wrong <= allowed,
            "{}: {wrong} of {} pages do not hold their stamps",
            filled.class,
            filled.count
        );
    }
    let mut found: BTreeMap<Class, u64> = BTreeMap::new();
    for pfn in vmcore.frames() {
        vmcore.page(pfn, &mut page).unwrap();
        if let StampCheck::Intact(stamp) = identify(&page) {
            *found.entry(stamp.class).or_default() += 1;
        }
    }
    for filled in crash.manifest().classes.iter().filter(|f| !WITHOUT_STAMPS.contains(&f.class)) {
        let count = found.get(&filled.class).copied().unwrap_or(0);
        let least = if filled.class == Class::Free { filled.count * 3 / 4 } else { filled.count };
        assert!(count >= least, "{}: {count} stamps in the vmcore, {} made", filled.class, filled.count);
    }
}

#[test]
fn every_kernel_crashes_with_its_stamps() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    // Other tests and validations crash the few as well, and each crash is kept.
    for kernel in lab::few_or_all(&["5.10", "6.1", "6.12", "7.2"], kernels::names(Architecture::X86_64)) {
        let crash = lab::crash(&Config { kernel: kernel.into(), ..Config::default() }).unwrap();
        assert!(crash.release().starts_with(kernel));
        let report = crash.report();
        assert_eq!(report.vmcore_bytes, std::fs::metadata(crash.vmcore()).unwrap().len());
        assert!(report.vmcore.as_ref().is_some_and(|saved| saved.mapped), "{}: no mmap", kernel);
        // All kernels support all classes but one: poisoning needs CONFIG_MEMORY_FAILURE, which 5.10 and 6.1 lack.
        for class in Class::ALL.into_iter().filter(|class| *class != Class::HwPoison) {
            assert!(crash.manifest().class(class).is_some(), "{}: no {class} pages", kernel);
        }
        assert!(crash.manifest().tasks.iter().any(|(_, name)| name == "lab-child"));
        check(&crash);
    }
}
