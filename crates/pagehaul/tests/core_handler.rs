//! The kernel's core handler, fed as the kernel feeds it. No test changes kernel.core_pattern of the machine it runs on.
#![cfg(feature = "process")]

mod common {
    #[cfg(feature = "remote")]
    pub mod store;
    pub mod subject;
}

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::subject::{BINARY, Subject, tool, with_small_disk};
use object::read::elf::{ElfFile64, ProgramHeader};
use pagehaul_encryption::{Decrypted, Identity};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_test_support::content::{PAGE, fill};
use tempfile::{TempDir, tempdir};

/// A directory with the configuration, the journal's socket and the cores.
struct Machine {
    directory: TempDir,
    journal: UnixDatagram,
}

/// A journal entry: values by field.
type Entry = HashMap<String, String>;

impl Machine {
    fn new(settings: &str) -> Self {
        let directory = tempdir().unwrap();
        let journal = UnixDatagram::bind(directory.path().join("journal")).unwrap();
        journal.set_nonblocking(true).unwrap();
        let this = Self { directory, journal };
        this.configure(settings);
        this
    }

    fn configure(&self, settings: &str) {
        let path = |name: &str| self.path(name).display().to_string();
        let text = format!(
            "directory = {}\nruntime = {}\njournal = {}\nrecipients = none\nmax_total = 100%\nkeep_free = 0\n{settings}\n",
            path("cores"),
            path("run"),
            path("journal")
        );
        fs::write(self.path("core.conf"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The handler of a crash of this process.
    fn handler(&self, pid: &str, limit: &str) -> Command {
        let mut command = tool(&["core-handler", "--config"]);
        command.arg(self.path("core.conf")).args([
            pid,
            pid,
            "0",
            "0",
            "11",
            "1764172495",
            limit,
            "host",
            "-a b",
        ]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Has the handler take the core that standard input is.
    fn take(&self, pid: &str, core: &[u8]) -> Output {
        take(self.handler(pid, UNLIMITED), core)
    }

    fn entries(&self) -> Vec<Entry> {
        let mut buffer = vec![0; 1 << 20];
        std::iter::from_fn(|| {
            let length = self.journal.recv(&mut buffer).ok()?;
            Some(entry(&buffer[..length]))
        })
        .collect()
    }

    /// The only entry.
    fn entry(&self) -> Entry {
        let mut entries = self.entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }

    fn cores(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("cores")).map_or_else(|_| Vec::new(), Iterator::collect);
        let paths = entries.into_iter().map(|entry: std::io::Result<fs::DirEntry>| entry.unwrap().path());
        // Besides cores there is a directory of those that are to be uploaded.
        paths.filter(|path| !path.is_dir()).collect()
    }

    /// The only core.
    fn core(&self) -> PathBuf {
        let mut cores = self.cores();
        assert_eq!(cores.len(), 1, "{cores:?}");
        cores.remove(0)
    }
}

const UNLIMITED: &str = "18446744073709551615";

fn take(mut handler: impl std::borrow::BorrowMut<Command>, core: &[u8]) -> Output {
    let mut child = handler.borrow_mut().spawn().unwrap();
    // The handler may not want all of it.
    let _ = child.stdin.take().unwrap().write_all(core);
    child.wait_with_output().unwrap()
}

/// Parses a datagram of the journal's native protocol.
fn entry(mut bytes: &[u8]) -> Entry {
    let mut entry = Entry::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| b"=\n".contains(byte)).unwrap();
        let name = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let (value, rest) = if bytes[end] == b'=' {
            let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            (&bytes[end + 1..line], &bytes[line + 1..])
        } else {
            let length = u64::from_le_bytes(bytes[end + 1..end + 9].try_into().unwrap()) as usize;
            (&bytes[end + 9..end + 9 + length], &bytes[end + 10 + length..])
        };
        assert!(entry.insert(name, String::from_utf8_lossy(value).into_owned()).is_none());
        bytes = rest;
    }
    entry
}

/// The core of a subject, as the kernel would write it.
fn core_of(subject: &Subject) -> Vec<u8> {
    let output = tool(&["core", "-q", "-c", "none", &subject.pid(), "-"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn decompressed(path: &Path) -> Vec<u8> {
    let mut elf = Vec::with_capacity(1 << 30);
    zstd_safe::decompress(&mut elf, &fs::read(path).unwrap()).expect("any zstd decompresses it");
    elf
}

/// Bytes of the file that hold memory from an address; `None` if it is not held.
fn held(elf: &[u8], address: u64, bytes: u64) -> Option<&[u8]> {
    let endian = object::LittleEndian;
    let core = ElfFile64::<object::LittleEndian>::parse(elf).unwrap();
    core.elf_program_headers().iter().find_map(|header| {
        let skip = address.checked_sub(header.p_vaddr(endian))?;
        let at = (header.p_offset(endian) + skip) as usize;
        (skip + bytes <= header.p_filesz(endian)).then(|| &elf[at..at + bytes as usize])
    })
}

fn assert_has_memory_of(subject: &Subject, elf: &[u8]) {
    let mut expected = vec![0; PAGE];
    let memory = held(elf, subject.address, subject.bytes).expect("the subject's memory");
    for (index, page) in memory.chunks(PAGE).enumerate() {
        fill(index, &mut expected);
        assert!(page == expected, "page {index} differs");
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Asserts that a core says of itself that it is incomplete: by its header, or by the table that its frames lack.
fn assert_is_marked(path: &Path) {
    let info = tool(&["info"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&info.stdout).into_owned();
    let by_header = text.contains("no: its writer did not finish");
    assert!(by_header || said(&info).contains("has no table of frames"), "{text}{}", said(&info));
}

/// A PID that no process has.
fn absent() -> String {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id().to_string()
}

#[test]
fn memory_comes_from_the_process_while_the_kernel_waits() {
    let machine = Machine::new("");
    let mut subject = Subject::start(&["20", "3"]);
    let pid = subject.pid();
    // In the kernel's place: its end of the pipe waits for a reader.
    let mut kernel = tool(&["core", "-q", "-c", "none", &pid, "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = kernel.stdout.take().unwrap();
    let output = machine.handler(&pid, UNLIMITED).stdin(pipe).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", said(&output));
    // It was not read to its end.
    assert!(!kernel.wait().unwrap().success());
    let path = machine.core();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_has_memory_of(&subject, &decompressed(&path));
    subject.goes_on();

    let info = String::from_utf8(tool(&["info", "--json"]).arg(&path).output().unwrap().stdout).unwrap();
    assert!(info.contains(&format!("\"pid\": {pid}")) && info.contains("\"threads\": 4"), "{info}");
    assert!(tool(&["verify"]).arg(&path).output().unwrap().status.success());

    let entry = machine.entry();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let name = format!("core.-a_b.0.{boot}.{pid}.1764172495000000.zst");
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let executable = executable.to_str().unwrap();
    for (field, value) in [
        ("MESSAGE_ID", "fc2e22bc6ee647b6b90729ab34a250b1"),
        ("PRIORITY", "2"),
        ("COREDUMP_PID", &pid),
        ("COREDUMP_UID", "0"),
        ("COREDUMP_GID", "0"),
        ("COREDUMP_SIGNAL", "11"),
        ("COREDUMP_SIGNAL_NAME", "SIGSEGV"),
        ("COREDUMP_TIMESTAMP", "1764172495000000"),
        ("COREDUMP_RLIMIT", UNLIMITED),
        ("COREDUMP_HOSTNAME", "host"),
        ("COREDUMP_COMM", "-a b"),
        ("COREDUMP_EXE", executable),
        (
            "COREDUMP_CMDLINE",
            &format!("{executable} 20 3").replace(executable, Subject::program().to_str().unwrap()),
        ),
        ("COREDUMP_FILENAME", machine.path("cores").join(name).to_str().unwrap()),
    ] {
        assert_eq!(entry.get(field).map(String::as_str), Some(value), "{field}");
    }
    assert!(entry["MESSAGE"].contains("bytes from its memory"), "{}", entry["MESSAGE"]);
    assert!(entry["COREDUMP_PROC_STATUS"].contains("VmRSS:") && !entry.contains_key("COREDUMP_TRUNCATED"));
}

/// The core with the page of vsyscalls behind all else, as kernels have it that are not built or booted with vsyscall=none.
fn with_vsyscalls(core: &[u8]) -> Vec<u8> {
    const TABLE: usize = 64;
    const HEADER: usize = 56;
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(core[56..58].try_into().unwrap()));
    // Notes come first, behind the table; memory begins at the next page.
    let (notes, end) = (TABLE + count * HEADER, word(TABLE + 8) + word(TABLE + 32));
    let memory = end.next_multiple_of(PAGE);
    let shift = (end + HEADER).next_multiple_of(PAGE) - memory;
    let mut head = core[..end].to_vec();
    head[56..58].copy_from_slice(&(count as u16 + 1).to_le_bytes());
    for index in 0..count {
        let at = TABLE + index * HEADER + 8;
        let offset = word(at) + if index == 0 { HEADER } else { shift };
        head[at..at + 8].copy_from_slice(&(offset as u64).to_le_bytes());
    }
    let (page, address) = (PAGE as u64, 0xffff_ffff_ff60_0000);
    let mut load = [1_u32, 1].map(u32::to_le_bytes).concat();
    load.extend([(core.len() + shift) as u64, address, 0, page, page, page].map(u64::to_le_bytes).concat());
    head.splice(notes..notes, load);
    head.resize(memory + shift, 0);
    [&head, &core[memory..], &[0; PAGE]].concat()
}

#[test]
fn the_page_of_vsyscalls_is_no_memory_of_the_process() {
    let mut subject = Subject::start(&["20", "3"]);
    let core = with_vsyscalls(&core_of(&subject));
    let machine = Machine::new("");
    let output = machine.take(&subject.pid(), &core);
    assert_eq!(code(&output), Some(0), "{}", said(&output));
    let elf = decompressed(&machine.core());
    assert_has_memory_of(&subject, &elf);
    assert!(held(&elf, 0xffff_ffff_ff60_0000, PAGE as u64).unwrap().iter().all(|byte| *byte == 0));
    let message = &machine.entry()["MESSAGE"];
    assert!(message.contains("bytes from its memory") && !message.contains("could not be read"), "{message}");
    subject.goes_on();
}

#[test]
fn the_pipe_is_taken_byte_by_byte() {
    let subject = Subject::start(&["20", "3"]);
    let core = core_of(&subject);
    for (settings, pid) in [
        ("read = pipe", subject.pid()),
        ("", absent()),
        ("compress = none", absent()),
        // Less than the core: it waits for the disk.
        ("max_memory = 4M\nthreads = 1", absent()),
    ] {
        let machine = Machine::new(settings);
        let output = machine.take(&pid, &core);
        assert_eq!(code(&output), Some(0), "{settings}: {}", said(&output));
        let path = machine.core();
        let is_plain = path.extension().is_none_or(|extension| extension != "zst");
        let written = if is_plain { fs::read(&path).unwrap() } else { decompressed(&path) };
        assert!(written == core, "{settings}");
        let message = &machine.entry()["MESSAGE"];
        assert!(message.contains("from the kernel's pipe"), "{message}");
        assert_eq!(message.contains("too small"), settings.contains("max_memory"), "{message}");
        assert_eq!(is_plain, settings.contains("none"));
    }
}

#[test]
fn another_process_with_the_number_is_not_read() {
    let (subject, other) = (Subject::start(&["20", "1"]), Subject::start(&["20", "1"]));
    let machine = Machine::new("");
    let core = core_of(&subject);
    assert_eq!(code(&machine.take(&other.pid(), &core)), Some(0));
    assert!(decompressed(&machine.core()) == core);
}

/// The headers of a 32-bit core with one segment, of `bytes` bytes of memory at 4096.
fn headers_of_32_bits(bytes: u32) -> Vec<u8> {
    let mut head = b"\x7fELF\x01\x01\x01".to_vec();
    head.resize(4096, 0);
    let mut set = |at: usize, value: u32| head[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // Type and machine (i386), the table, its count; kind, offset and size.
    for (at, value) in [(16, 4 | 3 << 16), (28, 52), (44, 1), (52, 1), (56, 4096), (68, bytes)] {
        set(at, value);
    }
    head
}

#[test]
fn a_core_of_32_bits_is_kept_as_it_is() {
    let machine = Machine::new("");
    let mut stream = headers_of_32_bits(3_000_000);
    stream.extend((0..3_000_000u32).map(|index| (index / 1000) as u8));
    assert_eq!(code(&machine.take(&absent(), &stream)), Some(0));
    assert!(decompressed(&machine.core()) == stream);
    let machine = Machine::new("");
    let output = machine.take(&absent(), &stream[..stream.len() - 1]);
    assert_eq!(code(&output), Some(3), "{}", said(&output));
    assert_is_marked(&machine.core());
}

#[test]
fn a_stream_that_is_no_core_is_not_written() {
    let subject = Subject::start(&["1", "1"]);
    let core = core_of(&subject);
    for stream in [&b"hello"[..], &[b'h'; 5000], &core[..64], &core[..1500]] {
        let machine = Machine::new("");
        let output = machine.take(&absent(), stream);
        assert_eq!(code(&output), Some(1), "{} bytes: {}", stream.len(), said(&output));
        assert_eq!(machine.cores(), Vec::<PathBuf>::new());
        assert!(machine.entry()["MESSAGE"].contains("There is no core"));
    }
}

#[test]
fn a_core_that_the_kernel_ends_early_is_marked() {
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    for (settings, length) in
        [("", core.len() / 2), ("compress = none", core.len() / 2), ("", core.len() - 1)]
    {
        let machine = Machine::new(settings);
        let output = machine.take(&absent(), &core[..length]);
        assert_eq!(code(&output), Some(3), "{}", said(&output));
        assert!(said(&output).contains("the kernel ended the core"), "{}", said(&output));
        assert_is_marked(&machine.core());
        let entry = machine.entry();
        assert_eq!(entry["COREDUMP_TRUNCATED"], "1");
        assert!(entry["MESSAGE"].contains("incomplete"), "{}", entry["MESSAGE"]);
    }
    // Nothing of use comes.
    for length in [0, 10] {
        let machine = Machine::new("");
        let output = machine.take(&absent(), &core[..length]);
        assert_eq!(code(&output), Some(1), "{}", said(&output));
        assert_eq!(machine.cores(), Vec::<PathBuf>::new());
        let entry = machine.entry();
        assert!(entry["MESSAGE"].contains("There is no core"), "{}", entry["MESSAGE"]);
        assert!(!entry.contains_key("COREDUMP_FILENAME"));
    }
}

#[test]
fn a_limited_core_has_notes_and_stacks_first() {
    let subject = Subject::start(&["20", "3"]);
    let core = core_of(&subject);
    // The main thread's stack: the last mapping but the kernel's.
    let maps = fs::read_to_string(format!("/proc/{}/maps", subject.pid())).unwrap();
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let (start, end) = stack.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let (start, end) = (number(start), number(end));
    let mut outputs = Vec::new();
    // From the process, whose stacks take only what was touched.
    let machine = Machine::new("max_core = 4M");
    let mut kernel =
        tool(&["core", "-q", "-c", "none", &subject.pid(), "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = kernel.stdout.take().unwrap();
    outputs.push((machine.handler(&subject.pid(), UNLIMITED).stdin(pipe).output().unwrap(), machine));
    kernel.wait().unwrap();
    // From the pipe, by the limit of the process.
    let machine = Machine::new("");
    outputs.push((take(machine.handler(&absent(), &(10 << 20).to_string()), &core), machine));
    for (output, machine) in outputs {
        assert_eq!(code(&output), Some(0), "{}", said(&output));
        let elf = decompressed(&machine.core());
        assert!(held(&elf, start, end - start).is_some(), "the stack is held");
        assert!(held(&elf, subject.address, subject.bytes).is_none(), "the large mapping is not");
        let entry = machine.entry();
        assert_eq!(entry["COREDUMP_TRUNCATED"], "1");
        assert!(entry["MESSAGE"].contains("Memory is left out"), "{}", entry["MESSAGE"]);
        for command in ["verify", "info"] {
            let output = tool(&[command]).arg(machine.core()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(code(&output), Some(3), "{command}: {text}");
            assert!(text.contains("memory was left out because of a limit"), "{command}: {text}");
        }
    }
}

#[test]
fn limits_and_rates_leave_an_entry_and_no_core() {
    let subject = Subject::start(&["1", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("rate = 2");
    for (limit, status) in [("0", 1), (UNLIMITED, 0), (UNLIMITED, 0), (UNLIMITED, 1)] {
        let output = take(machine.handler(&subject.pid(), limit), &core);
        assert_eq!(code(&output), Some(status), "{}", said(&output));
    }
    let messages: Vec<String> = machine.entries().iter().map(|entry| entry["MESSAGE"].clone()).collect();
    assert!(messages[0].contains("RLIMIT_CORE is 0 bytes"), "{messages:?}");
    assert!(messages[1].contains("dumped core") && messages[2].contains("dumped core"), "{messages:?}");
    assert!(messages[3].contains("2 cores within a minute"), "{messages:?}");
}

#[test]
fn what_is_wrong_in_the_configuration_is_journalled_and_the_default_holds() {
    let subject = Subject::start(&["1", "1"]);
    let machine = Machine::new("compress = lzo\nsize = 7");
    assert_eq!(code(&machine.take(&absent(), &core_of(&subject))), Some(0));
    assert!(machine.core().extension().is_some_and(|extension| extension == "zst"));
    let messages: Vec<String> = machine.entries().iter().map(|entry| entry["MESSAGE"].clone()).collect();
    assert_eq!(messages.len(), 3);
    assert!(messages[0].contains("core.conf, line 7: compress is \"lzo\""), "{messages:?}");
    assert!(messages[1].contains("line 8: there is no setting"), "{messages:?}");
}

#[test]
fn arguments_that_are_not_the_kernels_are_journalled() {
    let machine = Machine::new("");
    let config = machine.path("core.conf");
    let output = tool(&["core-handler", "--config"]).arg(&config).args(["1", "%I"]).output().unwrap();
    assert_eq!(code(&output), Some(2));
    assert!(machine.entry()["MESSAGE"].contains("kernel.core_pattern is wrong: expected 9 arguments"));
    // By its name, it is this command.
    let program = machine.path("core-handler");
    symlink(BINARY, &program).unwrap();
    let output =
        Command::new(&program).arg0("/usr/lib/pagehaul/core-handler").arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(version.trim(), format!("pagehaul-core-handler {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn old_cores_make_room() {
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("compress = none\nmax_total = 30M");
    for _ in 0..3 {
        let output = machine.take(&absent(), &core);
        assert_eq!(code(&output), Some(0), "{}", said(&output));
        // The one before is gone.
        assert_eq!(fs::read(machine.core()).unwrap().len(), core.len());
    }
}

#[test]
fn a_crash_storm_shares_the_budget() {
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("rate = none\nmax_memory = 24M\nthreads = 1");
    let pids: Vec<String> = (0..6).map(|_| absent()).collect();
    std::thread::scope(|scope| {
        let runs: Vec<_> = pids.iter().map(|pid| scope.spawn(|| machine.take(pid, &core))).collect();
        for run in runs {
            let output = run.join().unwrap();
            assert_eq!(code(&output), Some(0), "{}", said(&output));
        }
    });
    let cores = machine.cores();
    assert_eq!(cores.len(), pids.len());
    assert!(cores.iter().all(|path| decompressed(path) == core));
    let left: Vec<_> =
        fs::read_dir(machine.path("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with("memory.")), "{left:?}");
}

#[test]
fn a_full_disk_leaves_an_entry_and_what_there_was_room_for() {
    let subject = Subject::start(&["40", "2"]);
    let core = core_of(&subject);
    let machine = Machine::new("");
    fs::write(machine.path("input"), &core).unwrap();
    let text = fs::read_to_string(machine.path("core.conf")).unwrap();
    let text = format!("{text}directory = {}\ncompress = none\n", machine.path("disk").display());
    fs::write(machine.path("core.conf"), text).unwrap();
    let crash = format!("{0} {0} 0 0 11 1764172495 {UNLIMITED} host comm", absent());
    let script = format!(
        "{BINARY} core-handler --config core.conf {crash} <input; code=$?; cp disk/core.* . ; exit $code"
    );
    let output = with_small_disk(machine.directory.path(), &script);
    assert_eq!(code(&output), Some(3), "{}", said(&output));
    let entry = machine.entry();
    assert_eq!(entry["COREDUMP_TRUNCATED"], "1");
    assert!(entry["MESSAGE"].contains("No space left on device"), "{}", entry["MESSAGE"]);
    // Where there is no room from the start, not even a file is made.
    let machine = Machine::new("keep_free = 100%");
    assert_eq!(code(&machine.take(&absent(), &core)), Some(1));
    assert_eq!(machine.cores(), Vec::<PathBuf>::new());
    assert!(machine.entry()["MESSAGE"].contains("There is no core"));
}

#[test]
fn a_core_that_outgrows_its_room_is_ended() {
    let machine = Machine::new("compress = none\nmax_total = 2M\nmax_memory = 1M");
    let mut child = machine.handler(&absent(), UNLIMITED).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&headers_of_32_bits(u32::MAX)).unwrap();
    // Endless. The process in the kernel's place goes on once it is ended.
    while pipe.write_all(&[7; 1 << 20]).is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let entry = machine.entry();
    assert_eq!(entry["COREDUMP_TRUNCATED"], "1");
    assert!(entry["MESSAGE"].contains("max_total"), "{}", entry["MESSAGE"]);
}

/// Zeros are holes.
fn on_disk(core: &fs::Metadata) -> u64 {
    core.blocks() * 512
}

#[test]
fn a_killed_handler_leaves_a_marked_core_and_nothing_that_counts() {
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("compress = none\nmax_memory = 1M\nthreads = 1\nread = pipe");
    let mut child: Child = machine.handler(&absent(), UNLIMITED).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than the buffer, so that part of it is written. The kernel has not come to the end.
    let (taken, rest) = core.split_at(core.len() - PAGE);
    pipe.write_all(taken).unwrap();
    let path = loop {
        let written = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.len() > 1 << 20);
        if let Some(path) = machine.cores().into_iter().find(written) {
            break path;
        }
        std::thread::yield_now();
    };
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel's end of the pipe breaks, so that the process goes.
    assert!(pipe.write_all(rest).is_err());
    assert_is_marked(&path);
    // Not enough for both.
    let marked = on_disk(&fs::metadata(&path).unwrap());
    let whole = Machine::new("compress = none");
    assert_eq!(code(&whole.take(&absent(), &core)), Some(0));
    let room = on_disk(&fs::metadata(whole.core()).unwrap()) + marked / 2;
    machine.configure(&format!("max_memory = 64M\nmax_total = {room}\ncompress = none"));
    assert_eq!(code(&machine.take(&absent(), &core)), Some(0));
    assert!(fs::read(machine.core()).unwrap() == core, "the marked core made room");
    let message = machine.entry()["MESSAGE"].clone();
    assert!(message.contains("buffer of 67108864 bytes"), "what was reserved is free again: {message}");
    // The core has more zeros than that.
    assert!(core.len() > 64 << 20 && !message.contains("too small"), "{}: {message}", core.len());
}

#[test]
fn cores_are_encrypted_if_there_are_recipients() {
    let key = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data").join(name);
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new(&format!("recipients = {}", key("ssh.pub").display()));
    let output = machine.take(&absent(), &core);
    assert_eq!(code(&output), Some(0), "{}", said(&output));
    let path = machine.core();
    assert!(path.to_str().unwrap().ends_with(".zst.age"));
    let file =
        Decrypted::open(PlainFile::open(&path).unwrap(), &Identity::read(&key("ssh")).unwrap()).unwrap();
    let mut frames = vec![0; file.size() as usize];
    file.read_exact_at(0, &mut frames).unwrap();
    assert!(file.is_complete());
    let mut elf = Vec::with_capacity(1 << 30);
    zstd_safe::decompress(&mut elf, &frames).unwrap();
    assert!(elf == core);
    // What cannot be encrypted is not written.
    let machine = Machine::new("recipients = /nowhere");
    assert_eq!(code(&machine.take(&absent(), &core)), Some(1));
    assert_eq!(machine.cores(), Vec::<PathBuf>::new());
    assert!(machine.entry()["MESSAGE"].contains("nothing is written in the clear"));
}

#[test]
fn recipients_that_are_not_understood_leave_no_core_in_the_clear() {
    let subject = Subject::start(&["1", "1"]);
    let core = core_of(&subject);
    for settings in ["recipients = conf", "recipient = /path"] {
        let machine = Machine::new(settings);
        let output = machine.take(&absent(), &core);
        assert_eq!(code(&output), Some(1), "{settings}: {}", said(&output));
        assert_eq!(machine.cores(), Vec::<PathBuf>::new());
        let entries = machine.entries();
        let message = &entries.last().unwrap()["MESSAGE"];
        assert!(
            message.contains("nothing is written in the clear") && message.contains("line 7"),
            "{message}"
        );
    }
    let machine = Machine::new("");
    fs::remove_file(machine.path("core.conf")).unwrap();
    let output = machine.take(&absent(), &core);
    assert_eq!(code(&output), Some(1));
    assert!(said(&output).contains("core.conf: No such file"), "{}", said(&output));
}

/// Stands for the ssh client, and runs the commands on this machine.
const CLIENT: &str = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nexec sh -c \"$3\"\n";

#[test]
fn cores_are_uploaded_over_ssh() {
    let subject = Subject::start(&["1", "1"]);
    let core = core_of(&subject);
    let recipients = concat!(env!("CARGO_MANIFEST_DIR"), "/../encryption/tests/data/ssh.pub");
    let machine = Machine::new("");
    let there = machine.path("there");
    fs::create_dir_all(machine.path("bin")).unwrap();
    fs::write(machine.path("bin/ssh"), CLIENT).unwrap();
    fs::set_permissions(machine.path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let take_and_upload = |more: &str| {
        machine.configure(&format!("upload = ssh://host{}\n{more}", there.display()));
        let mut handler = machine.handler(&absent(), UNLIMITED);
        let path = format!("{}:{}", machine.path("bin").display(), std::env::var("PATH").unwrap());
        let output = take(handler.env("PATH", path), &core);
        assert_eq!(code(&output), Some(0), "{}", said(&output));
        let mut entries = machine.entries().into_iter();
        let (taken, uploaded) = (entries.next().unwrap(), entries.next().unwrap());
        assert!(!uploaded.contains_key("MESSAGE_ID"), "coredumpctl would list it twice");
        (PathBuf::from(&taken["COREDUMP_FILENAME"]), uploaded, said(&output))
    };
    // A directory that is not there.
    let (here, entry, told) = take_and_upload("after_upload = remove");
    assert!(here.exists() && told.contains("was not uploaded"), "{told}");
    assert_eq!(entry["PRIORITY"], "3");
    assert!(entry["MESSAGE"].contains(here.to_str().unwrap()), "{}", entry["MESSAGE"]);

    let left = here;
    fs::create_dir(&there).unwrap();
    for more in ["", &format!("recipients = {recipients}")] {
        let (here, entry, told) = take_and_upload(more);
        assert_eq!(told, "");
        let copy = there.join(here.file_name().unwrap());
        assert!(fs::read(&here).unwrap() == fs::read(&copy).unwrap());
        assert_eq!(entry["PRIORITY"], "6");
        assert!(
            entry["MESSAGE"].contains(&format!("to ssh://host{}", copy.display())),
            "{}",
            entry["MESSAGE"]
        );
    }
    assert!(
        fs::read(&left).unwrap() == fs::read(there.join(left.file_name().unwrap())).unwrap(),
        "sent later"
    );
    let (here, _, _) = take_and_upload("after_upload = remove");
    assert!(!here.exists() && there.join(here.file_name().unwrap()).exists());
}

#[cfg(feature = "remote")]
#[test]
fn cores_are_uploaded_to_a_store() {
    use common::store::Store;
    use pagehaul_test_support::server::Server;
    use std::sync::{Arc, Mutex};

    let subject = Subject::start(&["1", "1"]);
    let machine = Machine::new("upload = s3://cores/web");
    let store = Arc::new(Mutex::new(Store::default()));
    let shared = store.clone();
    let server = Server::start(move |request| shared.lock().unwrap().answer(request));
    let settings = machine.path("s3");
    let url = server.url("");
    fs::write(&settings, format!("aws_access_key_id=a\naws_secret_access_key=s\nendpoint_url={url}\n"))
        .unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o600)).unwrap();
    let mut handler = machine.handler(&absent(), UNLIMITED);
    handler.env("PAGEHAUL_S3", &settings).env("NO_PROXY", "127.0.0.1");
    let output = take(handler, &core_of(&subject));
    assert_eq!(code(&output), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "");
    let here = machine.core();
    let name = here.file_name().unwrap().to_str().unwrap();
    assert!(store.lock().unwrap().objects[&format!("/cores/web/{name}")] == fs::read(&here).unwrap());
}

#[test]
fn a_limit_of_address_space_leaves_a_smaller_buffer() {
    let subject = Subject::start(&["40", "1"]);
    let core = core_of(&subject);
    let all = ["threads = 100000", "threads = auto\nmax_memory = 100G", "max_memory = auto"];
    // Heaps of several threads fit into more than 200 MiB, and leave nothing for the rest.
    let cases =
        all.into_iter().flat_map(|settings| [160, 220, 260, 300].map(|limit| (settings, limit << 20)));
    for (settings, limit) in cases {
        let machine = Machine::new(settings);
        let mut handler = machine.handler(&absent(), UNLIMITED);
        // SAFETY: one system call, which may be made between fork and exec.
        unsafe {
            handler.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        let output = take(handler, &core);
        assert_eq!(code(&output), Some(0), "{settings}: {}", said(&output));
        assert!(decompressed(&machine.core()) == core);
    }
}

#[test]
fn a_name_that_exists_is_left_alone() {
    let subject = Subject::start(&["1", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("");
    let pid = absent();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let path = |time: &str| {
        let name = format!("core.-a_b.0.{boot}.{pid}.1764172495{time}.zst");
        machine.path("cores").join(name)
    };
    // A pipe without a reader: opening it would block.
    fs::create_dir(machine.path("cores")).unwrap();
    let fifo = std::ffi::CString::new(path("000000").to_str().unwrap()).unwrap();
    // SAFETY: the name ends with zero.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    symlink("/nowhere", path("000001")).unwrap();
    for time in ["000002", "000003"] {
        let output = machine.take(&pid, &core);
        assert_eq!(code(&output), Some(0), "{}", said(&output));
        assert_eq!(machine.entry()["COREDUMP_FILENAME"], path(time).to_str().unwrap());
        assert!(decompressed(&path(time)) == core);
    }
    assert_eq!(fs::read_link(path("000001")).unwrap(), Path::new("/nowhere"));
}

#[test]
fn the_pipe_is_closed_at_the_end_of_the_core() {
    let subject = Subject::start(&["20", "1"]);
    let core = core_of(&subject);
    let machine = Machine::new("read = pipe");

    let mut child = machine.handler(&absent(), UNLIMITED).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&core).unwrap();
    // More than the core says is not taken: the end is closed as soon as all has come.
    let mut broken = false;
    for _ in 0..1000 {
        broken = pipe.write_all(&[0; 64 << 10]).is_err();
        if broken {
            break;
        }
    }
    assert!(broken, "the handler closes the pipe at the core's end");
    let mut rest = String::new();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(decompressed(&machine.core()) == core);
}
