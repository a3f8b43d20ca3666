//! Pages of user space that are kept or left out by their owner.

mod common;

use std::sync::Arc;

use common::{Bench, assert_complete, assert_holds, options};
use pagehaul_capture::{
    CgroupRules, FileLayout, Format, KeepRules, Options, OwnerError, OwnerFilter, OwnerRules, ProcessTables,
    Target, capture, estimate, kept_bytes,
};
use pagehaul_physmem::MapPolicy;
use pagehaul_run::Progress;
use pagehaul_synth::{Class, Content, Era, Kind, Machine, PAGE};
use pagehaul_vmcore::Source;

/// Pages of the process: its own, one that it must not touch at the moment, one of a file, and a huge page.
const OWN: u64 = 0x4001;
const PROTECTED: u64 = 0x4003;
const MAPPED_FILE: u64 = 0x4101;
const HUGE: u64 = 0x4a00;
/// Pages that are charged to the cgroup, of a folio of four pages, and of a file.
const CHARGED: u64 = 0x4005;
const FOLIO: u64 = 0x4010;
const CHARGED_FILE: u64 = 0x4103;
/// Pages of others.
const OTHER: [u64; 3] = [0x4007, 0x4105, 0x4107];
const FREE: u64 = 0x4c00;
/// Page tables, the top one first.
const TABLES: u64 = 0x4800;
const SUPER_BLOCKS: [u64; 2] = [0xffff_8880_0600_0000, 0xffff_8880_0600_1000];
/// The direct map of x86_64 without KASLR.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;

/// Address of the object that `page.mapping` of a page of the synthetic machine points to; `page.lru` points behind it.
fn object(pfn: u64) -> u64 {
    DIRECT_MAP + 0x20_0000 + pfn % 4096 * 64
}

fn page(words: &[(usize, u64)]) -> Content {
    let mut bytes = [0; PAGE];
    for (at, word) in words {
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    Content::Bytes(Box::new(bytes))
}

fn bench(break_at: Option<u64>) -> Bench {
    let mut machine = Machine::new(Era::V6_12);
    for pfn in [OWN, PROTECTED, CHARGED, OTHER[0]] {
        machine.page(Kind::Anon, pfn, 0);
    }
    machine.page(Kind::Anon, FOLIO, 2).anon_thp(HUGE).buddy(FREE, 3);
    for pfn in [MAPPED_FILE, CHARGED_FILE] {
        machine.page(Kind::Cache, pfn, 0);
    }
    machine.page(Kind::CachePrivate, OTHER[1], 0).page(Kind::Shmem, OTHER[2], 0).page(
        Kind::Swapcache,
        0x4109,
        0,
    );
    machine.page(Kind::Hugetlb, 0x4e00, 9).page(Kind::Slab, 0x4201, 0);
    let inverted = |pfn: u64| !(pfn << 12) & 0x000f_ffff_ffff_f000;
    let table = |index: u64| (TABLES + index) << 12 | 0x67;
    let bad = break_at.map_or(0, |at| at << 12 | 0x67);
    machine
        // The last entry is of the kernel's half.
        .fill(TABLES, page(&[(0, table(1)), (1, bad), (256, 0xffff_ffff_ffff_ff67)]))
        .fill(TABLES + 1, page(&[(3, table(2))]))
        .fill(TABLES + 2, page(&[(0, table(3)), (1, HUGE << 12 | 0xe7)]))
        .fill(
            TABLES + 3,
            page(&[
                (0, OWN << 12 | 0x67),
                (1, inverted(PROTECTED) | 0x100 | 0x60),
                (2, MAPPED_FILE << 12 | 0x25),
                // In swap, a device's, and the kernel's.
                (3, 0x0f00_0000_0000_0e00),
                (4, 0x0000_0fee_0000_0067),
                (511, 0x4201 << 12 | 0x67),
            ]),
        );
    // Address spaces: a pointer to the inode, which begins there, and one to the super block.
    let mut spaces = vec![Vec::new(); 64];
    for pfn in [MAPPED_FILE, CHARGED_FILE, OTHER[1], OTHER[2]] {
        let at = (pfn % 4096 * 8) as usize;
        let block = SUPER_BLOCKS[usize::from(pfn == OTHER[2])];
        spaces[at / 512].extend([(at % 512, object(pfn)), (at % 512 + 1, block)]);
    }
    for (index, words) in spaces.iter().enumerate() {
        machine.fill(0x200 + index as u64, page(words));
    }
    Bench::new(machine.build())
}

fn processes() -> Vec<ProcessTables> {
    vec![ProcessTables { name: "kept/4711".into(), root: TABLES << 12 }]
}

fn cgroups(through: Option<u64>) -> CgroupRules {
    let groups = [CHARGED, FOLIO, CHARGED_FILE].map(|pfn| object(pfn) + 0x1_0000);
    // `page.lru` stands for what a page is charged to.
    CgroupRules { charged_to: 8, through, groups: groups.to_vec() }
}

fn rules(keep: Option<KeepRules>, drop: Option<Vec<u64>>) -> OwnerRules {
    let files = FileLayout { host: 0, mapping: 0, data: 0, super_block: 8 };
    OwnerRules { keep, drop, files, record: Vec::new() }
}

fn with(bench: &Bench, rules: OwnerRules, options: Options) -> Options {
    let filter = OwnerFilter::new(bench.source().memory(), rules, 1 << 20).unwrap();
    Options { owners: Some(Arc::new(filter)), ..options }
}

/// The pages of user space, and free ones, that are kept of all.
fn expected(bench: &Bench, kept: &[u64]) -> Vec<u64> {
    let is_there = |pfn: &u64| match bench.image.class(*pfn) {
        Class::Kernel => true,
        Class::HwPoison | Class::Offline => false,
        _ => kept.contains(pfn),
    };
    bench.image.pfns().into_iter().filter(is_there).collect()
}

fn of_process() -> Vec<u64> {
    [OWN, PROTECTED, MAPPED_FILE].into_iter().chain(HUGE..HUGE + 512).collect()
}

fn of_cgroup() -> Vec<u64> {
    [CHARGED, CHARGED_FILE].into_iter().chain(FOLIO..FOLIO + 4).collect()
}

#[test]
fn only_pages_of_kept_owners_are_in_the_dump() {
    let bench = bench(None);
    let both: Vec<u64> = of_process().into_iter().chain(of_cgroup()).collect();
    for (name, processes, cgroups, kept) in [
        ("process", processes(), None, of_process()),
        ("cgroup", Vec::new(), Some(cgroups(None)), of_cgroup()),
        ("both", processes(), Some(cgroups(None)), both),
    ] {
        let kept = expected(&bench, &kept);
        let rules = rules(Some(KeepRules { processes, cgroups }), None);
        for format in [Format::Kdump, Format::Flattened, Format::Elf] {
            let options = with(&bench, rules.clone(), options("0", "zlib", format));
            let (path, report) = bench.capture(&format!("{name}-{}", format.name()), &options);
            assert_complete(&report);
            assert_holds(&path, &bench.image, &kept, name);
            let of_classes: u64 = report.classes.iter().map(|class| class.excluded).sum();
            assert_eq!(report.other_owners.map(|pages| pages + of_classes), Some(report.pages_excluded));
            assert_eq!((report.pages_kept, report.dropped_file_systems), (kept.len() as u64, None));
            let progress = Progress::default();
            assert_eq!(kept_bytes(&bench.source(), &options, &progress).unwrap(), 4096 * kept.len() as u64);
            let dry = estimate(&bench.source(), &options, &progress).unwrap();
            assert_eq!((dry.pages_kept, dry.other_owners), (report.pages_kept, report.other_owners));
        }
        let options = with(&bench, rules, options("0", "zlib", Format::Kdump));
        let paths = ["a", "b"].map(|part| bench.path(&format!("{name}-{part}")));
        let target = Target::Parts { paths: paths.to_vec(), overwrite: false };
        let report = capture(&bench.source(), &target, &options, &Progress::default()).unwrap();
        assert_eq!((report.pages_kept, report.pages_written), (kept.len() as u64, kept.len() as u64));
    }
}

#[test]
fn the_level_applies_first() {
    let bench = bench(None);
    let keep = KeepRules { processes: processes(), cgroups: None };
    let options = with(&bench, rules(Some(keep), None), options("user", "zlib", Format::Kdump));
    let (path, report) = bench.capture("dump", &options);
    assert_holds(&path, &bench.image, &expected(&bench, &[MAPPED_FILE]), "user");
    let excluded = |name: &str| report.classes.iter().find(|of| of.class == name).map(|of| of.excluded);
    // Of user space by the level; by owner the other cached and the free pages.
    assert_eq!((excluded("anon"), excluded("free")), (Some(4 + 4 + 512), None));
    assert_eq!(report.other_owners, Some(4 + 8));
}

#[test]
fn pages_that_the_source_lacks_are_counted() {
    let bench = bench(None);
    let keep = || Some(KeepRules { processes: processes(), cgroups: None });
    let warned = |source: &Source, name: &str, level: &str| {
        let filter = OwnerFilter::new(source.memory(), rules(keep(), None), 1 << 20).unwrap();
        let options = Options { owners: Some(Arc::new(filter)), ..options(level, "zlib", Format::Kdump) };
        let (_, report) = bench.capture_from(source, name, &options);
        let lacks =
            |warning: &String| warning.split_once("the source lacks: ").map(|(_, count)| count.to_owned());
        report.warnings.iter().find_map(lacks)
    };
    let source_of = |level: &str| {
        let (path, _) = bench.capture(level, &options(level, "zlib", Format::Kdump));
        Source::open(&path, MapPolicy::default()).unwrap()
    };
    assert_eq!(warned(&bench.source(), "whole", "0"), None);
    // All of the process but its page of a file, and that page only.
    assert_eq!(warned(&source_of("user"), "no-user", "0").as_deref(), Some("514"));
    assert_eq!(warned(&source_of("cache"), "no-cache", "0").as_deref(), Some("1"));
    // What the level excludes is not asked for.
    assert_eq!(warned(&source_of("free,user"), "neither", "user"), None);
}

#[test]
fn cached_pages_of_dropped_file_systems_are_not_in_the_dump() {
    let bench = bench(None);
    let keep = KeepRules { processes: processes(), cgroups: None };
    for (name, keep, drop, lost) in [
        ("first", None, vec![SUPER_BLOCKS[0]], vec![MAPPED_FILE, CHARGED_FILE, OTHER[1]]),
        ("second", None, vec![SUPER_BLOCKS[1]], vec![OTHER[2]]),
        ("none", None, vec![], vec![]),
        ("kept", Some(keep), vec![SUPER_BLOCKS[0]], vec![MAPPED_FILE]),
    ] {
        let all = match &keep {
            Some(_) => expected(&bench, &of_process()),
            None => expected(&bench, &bench.image.pfns()),
        };
        let kept: Vec<u64> = all.into_iter().filter(|pfn| !lost.contains(pfn)).collect();
        let is_all = keep.is_none();
        let options = with(&bench, rules(keep, Some(drop)), options("0", "zlib", Format::Kdump));
        let (path, report) = bench.capture(name, &options);
        assert_holds(&path, &bench.image, &kept, name);
        assert_eq!(report.dropped_file_systems, Some(lost.len() as u64), "{name}");
        // The page of the swap cache has no file.
        let unknown =
            report.warnings.iter().any(|warning| warning.starts_with("1 pages of files whose file system"));
        assert_eq!(unknown, is_all, "{name}: {:?}", report.warnings);
    }
}

#[test]
fn pages_may_be_charged_through_another_object() {
    let bench = bench(None);
    // The object that stands for the cgroup has the super block of a file of the first.
    let groups = CgroupRules { groups: vec![SUPER_BLOCKS[1]], ..cgroups(Some(8)) };
    let groups = CgroupRules { charged_to: 24, ..groups };
    let keep = KeepRules { processes: Vec::new(), cgroups: Some(groups) };
    let options = with(&bench, rules(Some(keep), None), options("0", "zlib", Format::Kdump));
    let (path, _) = bench.capture("dump", &options);
    assert_holds(&path, &bench.image, &expected(&bench, &[OTHER[2]]), "through");
}

#[test]
fn what_cannot_be_followed_is_an_error() {
    let keep = || Some(KeepRules { processes: processes(), cgroups: None });
    let refused = |bench: &Bench, most| {
        let error = OwnerFilter::new(bench.source().memory(), rules(keep(), None), most).unwrap_err();
        (error.to_string(), error)
    };
    // A table outside memory, and tables that lead back to themselves.
    let (said, error) = refused(&bench(Some(0x9_0000)), 1 << 20);
    assert!(matches!(error, OwnerError::Process { .. }) && said.contains("kept/4711"), "{said}");
    let (said, _) = refused(&bench(Some(TABLES)), 1 << 20);
    assert!(said.contains("kept/4711"), "{said}");
    let (said, error) = refused(&bench(None), 4095);
    assert!(matches!(error, OwnerError::TooLarge { most: 4095 }), "{said}");
    let bench = bench(None);
    let empty = ProcessTables { name: "none/1".into(), root: (TABLES + 20) << 12 };
    let empty = KeepRules { processes: vec![empty], cgroups: None };
    let error = OwnerFilter::new(bench.source().memory(), rules(Some(empty), None), 1 << 20).unwrap_err();
    assert_eq!(error.to_string(), "the process none/1 maps no page");
}
