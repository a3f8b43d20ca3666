//! The commands whose outputs are hashed.

use crate::sources::{MIXED, WIDE, machines};

/// Exit status of a command that leaves an incomplete dump.
const INCOMPLETE: i32 = 3;

/// One command, or several that read each other's outputs.
pub struct Case {
    /// Name in the list of hashes.
    pub name: String,
    /// Arguments and expected exit status of each command. `@` stands for the output directory. The test
    /// hashes `@dump`, `@dump.sums` and standard output.
    pub steps: Vec<(Vec<String>, i32)>,
    /// Thread counts; the case runs once with each.
    pub threads: &'static [&'static str],
}

fn case(name: String, steps: &[(&str, i32)]) -> Case {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let steps = steps.iter().map(|&(line, status)| (words(line), status)).collect();
    Case { name, steps, threads: &["1", "2", "7"] }
}

fn capture(source: &str, options: &str) -> Case {
    ends(0, "capture", source, options)
}

fn convert(source: &str, options: &str) -> Case {
    ends(0, "convert", source, options)
}

/// A command with one output, which ends with `status`.
fn ends(status: i32, command: &str, source: &str, options: &str) -> Case {
    let line = format!("{command} {options} {source} @dump");
    case(format!("{command} {source} {options}"), &[(&line, status)])
}

/// A command that writes a dump to standard output.
fn to_stdout(command: &str, source: &str, options: &str) -> Case {
    let line = format!("{command} {options} {source} -");
    case(format!("{command} {source} {options} to stdout"), &[(&line, 0)])
}

/// Every case.
pub fn all() -> Vec<Case> {
    let mut cases = codecs();
    cases.extend(formats());
    cases.extend(kernels());
    cases.extend(incomplete());
    cases.extend(conversions());
    cases.extend(timing());
    cases
}

const CODECS: [&str; 9] =
    ["none", "zlib:1", "zlib:6", "lzo", "snappy", "zstd:1", "zstd:3", "zstd:-1", "zstd:-5"];

/// Every codec at every level, and other spellings of codecs and levels.
fn codecs() -> Vec<Case> {
    let mut cases = Vec::new();
    for codec in CODECS {
        for level in [0, 8, 31] {
            cases.push(capture(MIXED, &format!("-d {level} -c {codec}")));
        }
    }
    for codec in ["zlib:9", "zlib:12", "zstd:9", "zstd:19", "zlib", "zstd"] {
        cases.push(capture(MIXED, &format!("-c {codec}")));
    }
    for level in ["1", "2", "4", "16", "zero,cache,free", "all"] {
        cases.push(capture(MIXED, &format!("-d {level} -c lzo")));
    }
    cases.push(capture(MIXED, ""));
    cases
}

/// Flattened and ELF output, checksums, and ways to read the source.
fn formats() -> Vec<Case> {
    let mut cases = Vec::new();
    for codec in CODECS {
        cases.push(capture(MIXED, &format!("-f flattened -c {codec}")));
    }
    for level in [0, 8, 31] {
        cases.push(to_stdout("capture", MIXED, &format!("-d {level} -c zstd:1")));
        cases.push(capture(MIXED, &format!("-f elf -d {level}")));
    }
    for format in ["kdump", "flattened", "elf"] {
        cases.push(capture(MIXED, &format!("-f {format} --checksums -d 8")));
        cases.push(capture(WIDE, &format!("-f {format} -d 0 -c lzo")));
        cases.push(capture(WIDE, &format!("-f {format} -d 31 -c zstd:1")));
    }
    cases.push(capture(MIXED, "--map-size 64K -c snappy"));
    cases.push(capture(MIXED, "--no-mmap -c snappy"));
    cases
}

/// Kernel eras and vmcore layouts. They decide which pages are kept and in which order; one thread count is
/// enough.
fn kernels() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, _) in machines() {
        cases.push(capture(name, "-d 31 -c lzo"));
        cases.push(capture(name, "-d 8 -c none"));
    }
    for name in ["5-level", "holes", "small-sections", "high-memory", "unknown-classes"] {
        cases.push(capture(name, "-d 0 -c zstd:1"));
        cases.push(capture(name, "-d 31 -f elf"));
        cases.push(capture(name, "-d 31 -f flattened -c lzo"));
    }
    // The file has only the first bytes of one page of "partly-stored": its excluded bytes are zeros.
    for name in ["qemu", "many-segments", "partly-stored"] {
        cases.push(capture(name, "-d 31 -c lzo"));
        cases.push(capture(name, "-d 0 -f elf"));
    }
    // Without VMCOREINFO every page is kept.
    cases.push(capture("no-notes", "-d 1 -c lzo"));
    cases.into_iter().map(|case| Case { threads: &["2"], ..case }).collect()
}

/// Captures that reach a size limit, and incomplete sources.
fn incomplete() -> Vec<Case> {
    let mut cases = Vec::new();
    for (format, limit) in [("kdump", "2M"), ("flattened", "2M"), ("elf", "30M")] {
        cases.push(ends(
            INCOMPLETE,
            "capture",
            MIXED,
            &format!("-f {format} --size-limit {limit} -d 0 -c none"),
        ));
    }
    for (options, limits) in [("-d 0 -c none", &["5M", "15M"] as &[_]), ("-d 8 -c lzo --checksums", &["4M"])]
    {
        for limit in limits {
            cases.push(ends(INCOMPLETE, "capture", WIDE, &format!("{options} --size-limit {limit}")));
        }
    }
    cases.push(ends(INCOMPLETE, "capture", WIDE, "-f flattened --size-limit 8M -d 0 -c none"));
    cases.push(ends(INCOMPLETE, "capture", WIDE, "-f elf --size-limit 200M -d 0"));
    for options in ["-d 31 -c lzo", "-d 0 -c none", "-f flattened -c zstd:1", "-f elf -d 8"] {
        cases.push(ends(INCOMPLETE, "capture", "cut", options));
    }
    for source in ["cut", "kdump-cut", "kdump-incomplete", "flattened-cut", "part-0 part-2"] {
        for options in ["-c lzo", "-f flattened -c lzo", "-f elf"] {
            cases.push(ends(INCOMPLETE, "convert", source, options));
        }
    }
    cases
}

/// Every kind of source converted to every format.
fn conversions() -> Vec<Case> {
    let mut cases = Vec::new();
    for source in [MIXED, "kdump-v6", "flattened", "part-2 part-0 part-1"] {
        for options in
            ["-c lzo", "-c zlib:1 --checksums", "-d 31 -c zstd:3", "-f flattened -c snappy", "-f elf"]
        {
            cases.push(convert(source, options));
        }
        cases.push(to_stdout("convert", source, "-c zstd:-1"));
    }
    for version in 1..=5 {
        cases.push(convert(&format!("kdump-v{version}"), "-c lzo"));
    }
    for source in ["kdump-filtered", "flattened-shuffled", "flattened-rewritten", "qemu", "no-notes"] {
        cases.push(convert(source, "-c zstd:1"));
    }
    cases.push(convert("kdump-filtered", "-f elf"));
    for options in ["-d 31 -c lzo", "-d 0 -f elf"] {
        cases.push(capture("kdump-v6", options));
        cases.push(capture("kdump-filtered", options));
    }
    cases
}

/// Outputs whose bytes depend on timing, converted to a file whose bytes do not depend on it.
fn timing() -> Vec<Case> {
    let auto = [("capture -d 8 -c auto mixed @auto", 0), ("convert -c lzo @auto @dump", 0)];
    let parts =
        [("capture -d 0 -c zstd:1 wide @one @two @three", 0), ("convert -c none @three @one @two @dump", 0)];
    vec![case("auto, converted".into(), &auto), case("parts, converted".into(), &parts)]
}
