//! Dumps hold the pages they should, whatever the level, codec, format, source and number of threads.

mod common;

use common::{Bench, assert_complete, assert_holds, machine, options};
use pagehaul_capture::{Compression, Format, Options, estimate, kept_bytes};
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_run::Progress;
use pagehaul_synth::{Class, Codec, Content, Era, Machine};
use pagehaul_vmcore::Source;

/// Zero pages stay in a dump: they take no room, and read as zeros.
fn kept(image: &pagehaul_synth::Image, level: u32) -> Vec<u64> {
    image.expected(level & !1)
}

#[test]
fn each_level_keeps_its_pages() {
    let bench = Bench::new(machine().build());
    for level in [0, 1, 2, 4, 8, 16, 31] {
        let options = options(&level.to_string(), "zstd", Format::Kdump);
        let (path, report) = bench.capture(&format!("level-{level}"), &options);
        assert_complete(&report);
        let kept = kept(&bench.image, level);
        assert_eq!(report.pages_kept, kept.len() as u64);
        assert_holds(&path, &bench.image, &kept, &format!("level {level}"));
    }
}

#[test]
fn each_codec_gives_the_pages_back() {
    let bench = Bench::new(machine().build());
    let kept = kept(&bench.image, 31);
    for method in ["none", "zlib", "zlib:6", "lzo", "snappy", "zstd:-5", "zstd", "zstd:3"] {
        let (path, report) = bench.capture(method, &options("31", method, Format::Kdump));
        assert_complete(&report);
        assert_eq!(report.codec.split(':').next(), method.split(':').next());
        assert_holds(&path, &bench.image, &kept, method);
    }
}

#[test]
fn a_dump_of_mixed_codecs_gives_the_pages_back() {
    let bench = Bench::new(machine().build());
    let kept = kept(&bench.image, 31);
    for format in [Format::Kdump, Format::Flattened] {
        let (path, report) = bench.capture(format.name(), &options("31", "auto", format));
        assert_complete(&report);
        assert_eq!(report.codec, "auto");
        assert_eq!(report.methods.iter().map(|of| of.pages).sum::<u64>(), report.compressed_pages);
        assert_holds(&path, &bench.image, &kept, format.name());
    }
    let only = Options {
        compression: Compression::Auto("zlib".parse().unwrap()),
        ..options("31", "auto", Format::Kdump)
    };
    let (_, report) = bench.capture("zlib only", &only);
    assert!(report.methods.iter().all(|of| of.method.starts_with("zlib")), "{:?}", report.methods);
}

#[test]
fn flattened_dumps_are_the_same_dump() {
    let bench = Bench::new(machine().build());
    let (plain, _) = bench.capture("plain", &options("31", "lzo", Format::Kdump));
    let (flat, report) = bench.capture("flat", &options("31", "lzo", Format::Flattened));
    assert_complete(&report);
    assert_holds(&flat, &bench.image, &kept(&bench.image, 31), "flattened");
    // Taken as a source, it gives the plain file again, to the byte.
    let source = Source::open(&flat, MapPolicy::default()).unwrap();
    let (again, _) = bench.capture_from(&source, "again", &options("31", "lzo", Format::Kdump));
    assert!(std::fs::read(plain).unwrap() == std::fs::read(again).unwrap());
}

#[test]
fn elf_dumps_keep_short_runs_and_drop_long_ones() {
    let mut machine = Machine::new(Era::V6_12);
    // One free block shorter than the shortest hole, one longer.
    machine.populate(0x3000, 0x400, 3).buddy(0x4000, 7).slab(0x4080, 3).buddy(0x4400, 10).hwpoison(0x4090);
    machine.fill(0x3001, Content::Zero);
    let bench = Bench::new(machine.build());
    let (path, report) = bench.capture("elf", &options("16", "zstd", Format::Elf));
    assert_complete(&report);
    let kept: Vec<u64> = kept(&bench.image, 16);
    // Runs of excluded pages, poisoned ones left aside, that are shorter than a hole may be.
    let mut with_short = kept.clone();
    let free: Vec<u64> =
        bench.image.pfns().into_iter().filter(|&pfn| bench.image.class(pfn) == Class::Free).collect();
    for run in free.chunk_by(|a, b| a + 1 == *b).filter(|run| run.len() < 256) {
        with_short.extend(run);
    }
    with_short.sort_unstable();
    assert!(with_short.contains(&0x4000) && !with_short.contains(&0x4400) && !with_short.contains(&0x4090));
    assert_eq!(report.pages_kept, with_short.len() as u64);
    assert_holds(&path, &bench.image, &with_short, "ELF");
}

#[test]
fn the_bytes_do_not_depend_on_the_threads() {
    let bench = Bench::new(machine().build());
    let ways = [
        (Format::Kdump, "lzo"),
        (Format::Kdump, "zlib"),
        (Format::Kdump, "zstd"),
        (Format::Elf, "none"),
        (Format::Flattened, "snappy"),
    ];
    for (format, method) in ways {
        let bytes = |threads| {
            let options = Options { threads, ..options("31", method, format) };
            let (path, _) = bench.capture(&format!("{}-{method}-{threads}", format.name()), &options);
            std::fs::read(path).unwrap()
        };
        let one = bytes(1);
        for threads in [2, 4, 7] {
            assert!(bytes(threads) == one, "{} {method} with {threads} threads", format.name());
        }
    }
}

#[test]
fn dumps_of_every_kind_are_sources() {
    let bench = Bench::new(machine().build());
    let expected = kept(&bench.image, 31);
    let elf = bench.path("qemu");
    bench.image.qemu_elf().write(&elf).unwrap();
    let mut sources = vec![elf];
    for version in 4..=6 {
        let path = bench.path(&format!("v{version}"));
        bench.image.kdump().version(version).level(8).codec(Codec::Zlib).write(&path).unwrap();
        sources.push(path);
    }
    for path in sources {
        let source = Source::open(&path, MapPolicy::default()).unwrap();
        let name = format!("{}-again", path.file_name().unwrap().display());
        let (again, report) = bench.capture_from(&source, &name, &options("31", "zstd", Format::Kdump));
        assert_complete(&report);
        assert_holds(&again, &bench.image, &expected, &name);
    }
}

#[test]
fn a_source_that_is_mapped_gives_the_same_as_one_that_is_read() {
    let bench = Bench::new(machine().build());
    let (read, _) = bench.capture("read", &options("31", "lzo", Format::Kdump));
    let read = std::fs::read(read).unwrap();
    for (index, policy) in [
        MapPolicy { access: Access::Map, ..MapPolicy::default() },
        MapPolicy { window: 4096, access: Access::Map },
        MapPolicy { window: 64 << 20, access: Access::Map },
    ]
    .into_iter()
    .enumerate()
    {
        let source = Source::open(&bench.vmcore, policy).unwrap();
        let options = options("31", "lzo", Format::Kdump);
        let (path, _) = bench.capture_from(&source, &format!("policy-{index}"), &options);
        assert!(std::fs::read(path).unwrap() == read, "{policy:?}");
    }
}

#[test]
fn an_estimate_counts_what_a_capture_writes() {
    let bench = Bench::new(machine().build());
    let options = options("31", "zstd", Format::Kdump);
    let estimated = estimate(&bench.source(), &options, &Progress::default()).unwrap();
    let (path, report) = bench.capture("dump", &options);
    assert_eq!(estimated.pages_kept, report.pages_kept);
    let kept = kept_bytes(&bench.source(), &options, &Progress::default()).unwrap();
    assert_eq!(kept, report.pages_kept * 4096);
    assert_eq!(estimated.classes, report.classes);
    let size = std::fs::metadata(path).unwrap().len() as f64;
    let ratio = estimated.output_bytes as f64 / size;
    assert!((0.9..1.1).contains(&ratio), "{} estimated, {size} written", estimated.output_bytes);
}

#[test]
fn dumps_name_the_machine_that_crashed() {
    // Kernels before 5.11 do not export where the name is.
    for (era, exported) in [(Era::V5_10, true), (Era::V5_10, false), (Era::V6_12, true)] {
        let mut machine = Machine::new(era);
        machine.sampler(0x4000);
        if !exported {
            machine.without_info("OFFSET(uts_namespace.name)");
        }
        let bench = Bench::new(machine.build());
        let (path, _) = bench.capture("dump", &options("31", "none", Format::Kdump));
        let dump = Source::open(&path, MapPolicy::default()).unwrap();
        let uts = &dump.dumps()[0].info().uts;
        assert_eq!(
            (uts.nodename.as_str(), uts.domainname.as_str()),
            ("synth", "(none)"),
            "{era:?} {exported}"
        );
    }
}
