//! The commands that read dumps, as people and scripts use them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pagehaul_machine::PhysAddr;
use pagehaul_synth::{Content, Era, Image, Machine, Message};
use pagehaul_test_support::server::{Response, Server};

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");

struct Setup {
    directory: tempfile::TempDir,
    image: Image,
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(Era::V6_12);
        machine.sampler(0x4000).anon(0x5000).fill(0x5000, Content::Random).fill(0x9002, Content::Stamp);
        let text = "crash: sysrq triggered";
        machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
        let image = machine.build();
        image.elf().write(&directory.path().join("vmcore")).unwrap();
        image.kdump().level(31).mixed().write(&directory.path().join("dump")).unwrap();
        for (index, part) in image.kdump().level(31).parts(3).into_iter().enumerate() {
            std::fs::write(directory.path().join(format!("part.{index}")), part).unwrap();
        }
        Self { directory, image }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Runs, expects `code`, and gives both outputs.
    fn ends(&self, arguments: &[&str], code: i32) -> (Vec<u8>, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {said}{}", String::from_utf8_lossy(&stdout));
        (stdout, said)
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.ends(arguments, 0).0).unwrap()
    }

    /// Asserts that the file holds the pages `expected`, as they are in the machine, and no others.
    fn holds(&self, name: &str, expected: &[u64]) {
        let source =
            pagehaul_vmcore::Source::open(&self.path(name), pagehaul_physmem::MapPolicy::default()).unwrap();
        let mut view = source.memory().view();
        let mut scratch = [0; 4096];
        let found: Vec<u64> = self
            .image
            .pfns()
            .into_iter()
            .filter(|pfn| match view.page(PhysAddr::of_4k_page(*pfn), &mut scratch) {
                Ok(page) => {
                    assert!(*page == self.image.page(*pfn), "{name}: PFN {pfn:#x} has other contents");
                    true
                }
                Err(_) => false,
            })
            .collect();
        assert!(found == expected, "{name}: {} pages instead of {}", found.len(), expected.len());
    }
}

#[test]
fn dmesg_prints_the_log() {
    let setup = Setup::new();
    assert_eq!(setup.text(&["dmesg", "dump"]), "[    1.500000] crash: sysrq triggered\n");
    let line = "kern  :emerg : [    1.500000] [    T7] crash: sysrq triggered\n";
    assert_eq!(setup.text(&["dmesg", "-x", "--callers", "vmcore"]), line);
    let json = setup.text(&["dmesg", "--json", "part.2", "part.0", "part.1"]);
    for part in ["\"level\": \"emerg\"", "\"task\": 7", "\"damaged\": 0", "sysrq triggered"] {
        assert!(json.contains(part), "no {part} in {json}");
    }
}

#[test]
fn read_tells_by_its_exit_status_what_became_of_a_page() {
    let setup = Setup::new();
    let (bytes, _) =
        setup.ends(&["read", "vmcore", "--phys", "0x5000000", "--len", "8192", "--format", "raw"], 0);
    assert!(bytes == [setup.image.page(0x5000), setup.image.page(0x5001)].concat());
    let hex = setup.text(&["read", "vmcore", "--phys", "0x5000008", "--len", "24"]);
    assert!(hex.starts_with("0000000005000008  ") && hex.lines().count() == 2, "{hex}");
    // User pages are excluded at level 31.
    let (bytes, said) = setup.ends(&["read", "dump", "--phys", "0x5000000", "--format", "raw"], 4);
    assert!(bytes.is_empty() && said.contains("is excluded"), "{said}");
    assert!(setup.ends(&["read", "dump", "--phys", "0xff00000000"], 7).1.contains("no memory segment"));
    // The middle part is not given.
    let middle = setup.image.kdump().level(31).pfns()[setup.image.kdump().level(31).pfns().len() / 2] << 12;
    let address = middle.to_string();
    let (_, said) = setup.ends(&["read", "part.0", "part.2", "--phys", &address], 5);
    assert!(said.contains("part"), "{said}");
    setup.ends(&["read", "part.0", "part.2", "part.1", "--phys", &address], 0);
    // The kernel's own memory, by both of its addresses.
    let (text, physical) = setup.image.text();
    let by = |kind: &str, address: u64| {
        setup.ends(&["read", "dump", kind, &format!("{address:#x}"), "--len", "9000", "--format", "raw"], 0).0
    };
    assert!(by("--virt", text) == by("--phys", physical));
    assert!(setup.ends(&["read", "dump", "--virt", "0x1000"], 7).1.contains("not mapped"));
    setup.ends(&["read", "dump"], 2);
}

/// Such a dump does not mark them.
#[test]
fn pages_that_a_limit_left_out_are_not_called_excluded_alone() {
    let mut machine = Machine::new(Era::V6_12);
    for pfn in 0x5000..0x6000 {
        machine.anon(pfn).fill(pfn, Content::Random);
    }
    let directory = tempfile::tempdir().unwrap();
    let image = machine.build();
    image.elf().write(&directory.path().join("vmcore")).unwrap();
    let setup = Setup { directory, image };
    setup.ends(&["capture", "-q", "-d", "0", "--size-limit", "8M", "vmcore", "limited"], 3);
    let (said, _) = setup.ends(&["verify", "limited"], 3);
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("are excluded or left out of this incomplete dump"), "{said}");
    let (_, said) = setup.ends(&["read", "limited", "--phys", "0x5fff000"], 4);
    assert!(said.contains("is excluded") && said.contains("may have been left out at a limit"), "{said}");
    let (_, said) = setup.ends(&["capture", "-q", "-d", "31", "vmcore", "whole"], 0);
    assert_eq!(said, "");
    let (_, said) = setup.ends(&["read", "whole", "--phys", "0x5fff000"], 4);
    assert!(said.contains("is excluded") && !said.contains("left out"), "{said}");
}

/// A PT_LOAD may start, end, or end its stored bytes within a page.
#[test]
fn bytes_of_pages_stored_in_part_are_kept_and_named() {
    let setup = Setup::new();
    let mut elf = setup.image.qemu_elf();
    let last = elf.segments.len() - 1;
    let start = elf.segments[last].paddr;
    let stored = 0x2800 - start % 4096;
    elf.store_only(last, stored).write(&setup.path("partly")).unwrap();
    let (pfn, end) = ((start + stored) >> 12, start + stored);
    let mut expected = setup.image.page(pfn);
    assert!(expected[..0x800].iter().any(|byte| *byte != 0));
    expected[0x800..].fill(0);

    let read = |name: &str, at: u64, len: u64, code: i32| {
        let (at, len) = (at.to_string(), len.to_string());
        setup.ends(&["read", name, "--phys", &at, "--len", &len, "--format", "raw"], code)
    };
    let (bytes, said) = read("partly", end - 0x1800, 0x2000, 4);
    assert!(bytes == [&setup.image.page(pfn - 1)[..], &expected[..0x800]].concat());
    assert!(said.contains(&format!("{end:#x}")), "{said}");
    assert!(read("partly", end, 1, 4).0.is_empty());
    // Memory ends within PFN 0x9f.
    let (bytes, _) = read("partly", 0x9f000, 4096, 7);
    assert_eq!(bytes.len() as u64, setup.image.ram()[0].1 - 0x9f000);
    // A file that ends within a page.
    let whole = std::fs::read(setup.path("partly")).unwrap();
    std::fs::write(setup.path("cut"), &whole[..whole.len() - 0x100]).unwrap();
    assert_eq!(read("cut", pfn << 12, 4096, 5).0, expected[..0x700]);

    let described = setup.text(&["info", "--json", "partly"]);
    assert!(described.contains("\"partly_stored_pages\": 1"), "{described}");
    assert!(setup.text(&["info", "partly"]).contains("1 in part"));
    setup.text(&["verify", "partly"]);
    for format in ["kdump", "elf", "flattened"] {
        let said = setup.text(&["convert", "--force", "-f", format, "partly", "converted"]);
        assert!(said.contains("1 pages are in the source in part only"), "{said}");
        assert!(read("converted", pfn << 12, 4096, 0).0 == expected, "{format}");
        assert!(read("converted", (pfn + 1) << 12, 1, 4).0.is_empty(), "{format}");
    }
}

#[test]
fn verify_finds_what_changed() {
    let setup = Setup::new();
    setup.text(&["capture", "-q", "--checksums", "-d", "31", "-c", "lzo", "vmcore", "own"]);
    let said = setup.text(&["verify", "own"]);
    assert!(said.contains("checksums: no changes") && said.ends_with("intact\n"), "{said}");
    // Bytes of pages that are stored as they are can change unnoticed, so nothing else is claimed.
    setup.text(&["convert", "-c", "none", "dump", "plain"]);
    let mut bytes = std::fs::read(setup.path("plain")).unwrap();
    let at = bytes.len() - 5000;
    bytes[at..at + 25].fill(0xa5);
    std::fs::write(setup.path("plain"), bytes).unwrap();
    for dump in ["dump", "plain"] {
        let said = setup.text(&["verify", dump]);
        assert!(
            said.contains(
                "\nreadable; without checksums changed bytes can go unnoticed (`capture --checksums`"
            ),
            "{said}"
        );
        let json = setup.text(&["verify", "--json", dump]);
        assert!(json.contains("\"verdict\": \"readable\"") && json.contains("\"intact\": null"), "{json}");
    }
    setup.text(&["verify", "part.1", "part.0", "part.2"]);
    assert!(
        String::from_utf8_lossy(&setup.ends(&["verify", "part.1", "part.0"], 3).0).contains("is missing")
    );
    // Every range of the file: wherever a byte changes, it is found and located.
    let good = std::fs::read(setup.path("own")).unwrap();
    std::fs::copy(setup.path("own.sums"), setup.path("copy.sums")).unwrap();
    let last = good.len() - 1;
    for at in [0, 13, 424, 4096 + 50, 4096 + 200, 3 * 4096, 6 * 4096, good.len() / 2, last] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        std::fs::write(setup.path("copy"), &bytes).unwrap();
        let output = setup.command(&["verify", "copy"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // A signature that is gone leaves no dump to look at.
        assert!(matches!(output.status.code(), Some(1 | 3)), "{at}: {said}");
        assert!(output.status.code() == Some(1) || said.contains("changed ("), "{at}: {said}");
    }
    std::fs::write(setup.path("copy"), &good[..good.len() / 2]).unwrap();
    let (said, _) = setup.ends(&["verify", "--json", "copy"], 3);
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("\"intact\": false") && said.contains("\"state\": \"missing\""), "{said}");
    std::fs::write(setup.path("copy"), &good).unwrap();
    setup.text(&["verify", "copy"]);
}

#[test]
fn conversions_keep_every_page() {
    let setup = Setup::new();
    let all = setup.image.pfns();
    let kept = setup.image.expected(31);
    setup.text(&["convert", "-q", "vmcore", "kdump"]);
    setup.holds("kdump", &all);
    setup.text(&["convert", "-q", "-f", "flattened", "-c", "lzo", "kdump", "flat"]);
    setup.holds("flat", &all);
    setup.text(&["convert", "-q", "-f", "elf", "flat", "elf"]);
    setup.holds("elf", &all);
    setup.text(&["convert", "-q", "-c", "zlib", "elf", "again"]);
    setup.holds("again", &all);
    setup.text(&["convert", "-q", "part.2", "part.0", "part.1", "whole"]);
    setup.holds("whole", &kept);
    setup.text(&["convert", "-q", "-d", "31", "again", "filtered"]);
    setup.holds("filtered", &kept);
    assert!(setup.ends(&["convert", "vmcore", "vmcore"], 1).1.contains("is the source itself"));
    assert!(setup.ends(&["convert", "vmcore", "dump", "x"], 1).1.contains("an ELF file"));
    assert!(setup.ends(&["convert", "vmcore"], 2).1.contains("2 values"));
}

#[test]
fn what_is_lost_is_said_and_stays_marked() {
    let setup = Setup::new();
    let bytes = std::fs::read(setup.path("dump")).unwrap();
    std::fs::write(setup.path("cut"), &bytes[..bytes.len() - 20_000]).unwrap();
    let (_, said) = setup.ends(&["convert", "-q", "cut", "salvaged"], 3);
    assert!(said.contains("could not be read; salvaged is marked incomplete"), "{said}");
    let (described, _) = setup.ends(&["info", "salvaged"], 3);
    assert!(String::from_utf8_lossy(&described).contains("complete      no"));
    let (_, said) = setup.ends(&["convert", "-q", "part.0", "part.1", "two"], 3);
    assert!(said.contains("the source is incomplete"), "{said}");
    let (described, _) = setup.ends(&["info", "--json", "two"], 3);
    assert!(String::from_utf8_lossy(&described).contains("\"complete\": false"));
}

#[test]
fn pages_say_where_memory_was() {
    let setup = Setup::new();
    let text = setup.text(&["pages", "dump"]);
    for part in ["class", "slab", "hugetlb", "blocks of order", "in the dump"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // A filtered dump tells as much of what there was as a whole one.
    let totals = |name: &str| {
        let json = setup.text(&["pages", "--json", name]);
        let census: serde_json::Value = serde_json::from_str(&json).unwrap();
        (census["orders"].clone(), census["map"].clone(), census["pages"].as_u64())
    };
    assert_eq!(totals("dump"), totals("vmcore"));
    assert_eq!(totals("dump").2, Some(setup.image.pfns().len() as u64));
    setup.text(&["pages", "dump", "--html", "page.html"]);
    let page = std::fs::read_to_string(setup.path("page.html")).unwrap();
    for part in ["<!DOCTYPE html>", ">slab<", "\"cells\"", "</html>"] {
        assert!(page.contains(part), "no {part} in the page");
    }
}

#[test]
fn no_page_or_chart_is_written_over_its_source() {
    let setup = Setup::new();
    let before = std::fs::read(setup.path("dump")).unwrap();
    std::os::unix::fs::symlink("dump", setup.path("link")).unwrap();
    std::fs::hard_link(setup.path("part.1"), setup.path("hard")).unwrap();
    for arguments in [
        &["pages", "--html", "dump", "dump"][..],
        &["pages", "--html", "link", "dump"],
        &["pages", "--html", "hard", "part.0", "part.1", "part.2"],
        &["bench", "codec", "--time", "1ms", "--plot", "dump", "dump"],
        &["bench", "read", "--time", "1ms", "--plot", "./dump", "dump"],
    ] {
        let said = setup.ends(arguments, 1).1;
        assert!(said.contains("is the source itself; name another output"), "{arguments:?}: {said}");
    }
    assert!(std::fs::read(setup.path("dump")).unwrap() == before);
    setup.ends(&["pages", "--html", "page.html", "dump"], 0);
    setup.ends(&["pages", "--html", "page.html", "dump"], 1);
    setup.ends(&["pages", "--html", "page.html", "--force", "dump"], 0);
}

#[test]
fn verifying_is_ended_by_the_first_signal() {
    use std::os::unix::process::ExitStatusExt;
    let setup = Setup::new();
    let threads = 4;
    loop {
        let mut child = setup
            .command(&["verify", "-t", &threads.to_string(), "vmcore"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let tasks = format!("/proc/{}/task", child.id());
        // Until it reads the dump: the main thread and all that read.
        while std::fs::read_dir(&tasks).unwrap().count() <= threads && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        let ended = child.wait().unwrap();
        if ended.signal() == Some(15) {
            return;
        }
        // A busy machine may have let it finish.
        assert!(ended.success(), "{ended}");
    }
}

/// Each command that prints, with standard output and standard error as given.
fn commands_that_print() -> Vec<Vec<&'static str>> {
    let lines = [
        "info dump",
        "info --json dump",
        "dmesg dump",
        "pages dump",
        "pages --json dump",
        "read vmcore --phys 0x5000000",
        "verify dump",
        "completions bash",
        "bench codec --time 1ms -c lzo",
    ];
    lines.iter().map(|line| line.split(' ').collect()).collect()
}

#[test]
fn output_that_cannot_be_written_is_one_sentence() {
    let setup = Setup::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in commands_that_print() {
        let output = setup.command(&arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let sentence = "No space left on device";
        assert!(said.lines().count() == 1 && said.contains(sentence), "{arguments:?}: {said}");
    }
    // The dump is there: its exit status says so even if no one reads the report.
    for errors in [Stdio::null(), Stdio::from(full())] {
        let mut capture = setup.command(&["capture", "--force", "vmcore", "made"]);
        let status = capture.stdout(full()).stderr(errors).status().unwrap();
        assert_eq!(status.code(), Some(0));
    }
    let status = setup.command(&["info", "vmcore.missing"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let setup = Setup::new();
    for arguments in commands_that_print() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = setup.command(&arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn info_describes_sets_maps_and_processors() {
    let setup = Setup::new();
    let text = setup.text(&["info", "--classes", "--notes", "part.1", "part.0", "part.2"]);
    for part in ["split set of 3", "complete      yes", "RAM  ", "CPU 1", "rip ", "VMCOREINFO, type", "slab"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let (described, _) = setup.ends(&["info", "part.1"], 3);
    assert!(String::from_utf8_lossy(&described).contains("one part of a split set"));
}

/// Where FUSE is not to be had, there is nothing to test.
fn can_mount() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
        && rustix::process::geteuid().is_root()
}

/// Unmounts even if an assertion fails.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).stderr(Stdio::null()).status();
    }
}

/// Unmounts once no process has a file there open. Another thread's child, not yet at its exec, may still have this process's.
fn unmount(directory: &Path) {
    loop {
        let output = Command::new("umount").arg(directory).output().unwrap();
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("busy"), "{said}");
    }
}

#[test]
fn a_mounted_dump_is_a_vmcore() {
    if !can_mount() {
        eprintln!("not tested: /dev/fuse cannot be used here");
        return;
    }
    let setup = Setup::new();
    let directory = setup.path("mnt");
    std::fs::create_dir(&directory).unwrap();
    let _unmount = Unmount(&directory);
    // All pages; then a filtered dump, in parts, whose holes are errors or zeros.
    setup.text(&["convert", "-q", "-c", "lzo", "vmcore", "all"]);
    let vmcore = directory.join("vmcore");
    setup.text(&["mount", "--background", "all", "mnt"]);
    std::fs::copy(&vmcore, setup.path("copied")).unwrap();
    assert_eq!(setup.text(&["dmesg", "vmcore"]), std::fs::read_to_string(directory.join("dmesg")).unwrap());
    assert_eq!(std::fs::read_to_string(directory.join("vmcoreinfo")).unwrap(), setup.image.vmcoreinfo());
    assert!(std::fs::read_to_string(directory.join("info.json")).unwrap().contains("\"memory_bytes\""));
    assert!(std::fs::write(&vmcore, "x").is_err());
    // Mapped: what our ELF reader does with --map-size.
    setup.text(&["capture", "-q", "-d", "0", "-f", "elf", "--map-size", "4M", "mnt/vmcore", "mapped"]);
    setup.holds("mapped", &setup.image.expected(0));
    setup.holds("copied", &setup.image.pfns());
    unmount(&directory);

    // However --background is written.
    setup.text(&["mount", "-bt2", "--", "all", "mnt"]);
    assert_eq!(setup.text(&["dmesg", "mnt/vmcore"]), setup.text(&["dmesg", "vmcore"]));
    unmount(&directory);

    // Other users may read it if they are to.
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "head", "-c4"]);
        command.arg(&vmcore).stderr(Stdio::null()).output().unwrap().stdout
    };
    // The test's directory is its user's alone.
    let open =
        |mode| std::fs::set_permissions(setup.path(""), std::fs::Permissions::from_mode(mode)).unwrap();
    open(0o755);
    for (option, expected) in [("--allow-other", b"\x7fELF".as_slice()), ("--threads=2", b"")] {
        setup.text(&["mount", "--background", option, "all", "mnt"]);
        assert_eq!(as_nobody(), expected, "{option}");
        unmount(&directory);
    }
    open(0o700);

    // At the same place, while the process of the last mount still ends: it must leave the new one alone.
    for _ in 0..20 {
        setup.text(&["mount", "--background", "all", "mnt"]);
        assert_eq!(setup.text(&["dmesg", "mnt/vmcore"]), setup.text(&["dmesg", "vmcore"]));
        unmount(&directory);
    }
    setup.text(&["mount", "--background", "part.2", "part.0", "part.1", "mnt"]);
    assert_eq!(std::fs::read(&vmcore).unwrap_err().raw_os_error(), Some(5), "excluded pages are errors");
    let status =
        Command::new("cp").args(["--sparse=auto"]).arg(&vmcore).arg(setup.path("sparse")).status().unwrap();
    assert!(status.success(), "holes are not read");
    unmount(&directory);

    // Of an incomplete source, an ELF file marked incomplete.
    let output = setup.command(&["mount", "--background", "part.0", "mnt"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("name the other parts, too"), "{said}");
    assert!(!said.contains("\n\n") && !said.starts_with('\n'), "{said:?}");
    let mut header = [0; 64];
    std::io::Read::read_exact(&mut std::fs::File::open(&vmcore).unwrap(), &mut header).unwrap();
    assert_eq!(header[48..52], 1_u32.to_le_bytes(), "e_flags");
    unmount(&directory);

    // A truncated one is named, and a whole one is mounted without a word, also if its line cannot be printed.
    let whole = std::fs::read(setup.path("all")).unwrap();
    std::fs::write(setup.path("cut"), &whole[..whole.len() / 2]).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (dump, out, expected) in
        [("cut", Stdio::null(), "pagehaul: cut: it is truncated\n"), ("all", full.into(), "")]
    {
        let mut command = setup.command(&["mount", "--background", dump, "mnt"]);
        let output = command.stdout(out).output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), expected)
        );
        assert!(vmcore.exists(), "{dump} is not mounted");
        unmount(&directory);
    }

    // In the foreground, ended by a signal.
    let mut child = setup
        .command(&["mount", "--excluded", "zero", "dump", "mnt"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.starts_with("mounted on"), "{line}");
    assert!(std::fs::read(&vmcore).unwrap() == std::fs::read(setup.path("sparse")).unwrap());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!vmcore.exists(), "it is unmounted");
}

#[test]
fn a_dump_on_a_server_is_mounted() {
    if !can_mount() {
        eprintln!("not tested: /dev/fuse cannot be used here");
        return;
    }
    let setup = Setup::new();
    let directory = setup.path("mnt");
    std::fs::create_dir(&directory).unwrap();
    let _unmount = Unmount(&directory);
    setup.text(&["convert", "-q", "-c", "lzo", "vmcore", "all"]);
    let dump = std::fs::read(setup.path("all")).unwrap();
    let server = Server::start(move |request| Response::range(request, &dump, "v1"));
    let url = server.url("/all?X-Amz-Signature=hidden");
    let mounted =
        setup.command(&["mount", "--background", &url, "mnt"]).env("NO_PROXY", "127.0.0.1").output().unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains("hidden"));
    assert_eq!(setup.text(&["dmesg", "vmcore"]), std::fs::read_to_string(directory.join("dmesg")).unwrap());
    std::fs::copy(directory.join("vmcore"), setup.path("copied")).unwrap();
    setup.holds("copied", &setup.image.pfns());
    unmount(&directory);
}
