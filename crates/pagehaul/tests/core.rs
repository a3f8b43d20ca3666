//! `pagehaul core` on processes of our own: what is in the core, and that the process goes on whatever happens.
#![cfg(feature = "process")]

mod common {
    pub mod limits;
    pub mod subject;
}

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::limits::{few_threads, no_threads};
use common::subject::{BINARY, Subject, tool, with_small_disk};
use object::read::elf::{ElfFile64, ProgramHeader};
use pagehaul_test_support::content::{PAGE, fill};
use tempfile::tempdir;

type Core<'a> = ElfFile64<'a, object::LittleEndian>;

/// The bytes of the core at an address; what the file has no bytes for is not there.
fn memory<'a>(core: &Core<'a>, file: &'a [u8], address: u64, length: u64) -> Option<&'a [u8]> {
    core.elf_program_headers().iter().find_map(|header| {
        let (start, size) = (header.p_vaddr(object::LittleEndian), header.p_filesz(object::LittleEndian));
        let within = address.checked_sub(start).filter(|skip| skip + length <= size)?;
        let at = (header.p_offset(object::LittleEndian) + within) as usize;
        file.get(at..at + length as usize)
    })
}

/// Checks everything in a core that the subject knows of.
fn assert_is_core_of(subject: &Subject, file: &[u8], one_moment: bool) {
    let core = Core::parse(file).unwrap();
    assert_eq!(core.elf_header().e_flags.get(object::LittleEndian).0, 0, "marked incomplete");
    let held = memory(&core, file, subject.address, subject.bytes).expect("the subject's memory");
    let mut expected = vec![0; PAGE];
    for (index, page) in held.chunks(PAGE).enumerate() {
        fill(index, &mut expected);
        assert!(page == expected, "page {index} differs");
    }
    let threads = subject.workers;
    let counters = memory(&core, file, subject.counters, threads * 16).expect("the subject's counters");
    let counter = |index: u64| {
        let at = index as usize * 8;
        u64::from_le_bytes(counters[at..at + 8].try_into().unwrap())
    };
    for index in 0..threads {
        let (low, high) = (counter(index), counter(2 * threads - 1 - index));
        assert!(!one_moment || low == high || low == high + 1, "thread {index} counted {low} and {high}");
    }
    let mut notes = core.elf_header().e_phnum.get(object::LittleEndian);
    for header in core.elf_program_headers() {
        let Ok(Some(mut found)) = header.notes(object::LittleEndian, file) else { continue };
        let mut kinds = Vec::new();
        while let Some(note) = found.next().unwrap() {
            kinds.push(note.n_type(object::LittleEndian).0);
        }
        let count = |kind: u32| kinds.iter().filter(|found| **found == kind).count() as u64;
        // PRSTATUS, FPREGSET, SIGINFO, and X86_XSTATE or ARM_TLS of each thread; AUXV, FILE and PRPSINFO once.
        let own = if cfg!(target_arch = "x86_64") { 0x202 } else { 0x401 };
        for kind in [1, 2, own, 0x5349_4749] {
            assert_eq!(count(kind), threads + 1, "notes of type {kind:#x}");
        }
        for kind in [3, 6, 0x4649_4c45] {
            assert_eq!(count(kind), 1, "notes of type {kind:#x}");
        }
        notes = 0;
    }
    assert_eq!(notes, 0, "no PT_NOTE");
}

/// The contents of a core's notes of a kind.
fn notes(file: &[u8], kind: u32) -> Vec<Vec<u8>> {
    let core = Core::parse(file).unwrap();
    let headers = core.elf_program_headers().iter();
    let mut all = headers.filter_map(|header| header.notes(object::LittleEndian, file).unwrap());
    let mut found = Vec::new();
    let mut notes = all.next().expect("PT_NOTE");
    while let Some(note) = notes.next().unwrap() {
        if note.n_type(object::LittleEndian).0 == kind {
            found.push(note.desc().to_vec());
        }
    }
    found
}

/// Four numbers of 32 bits in a note.
fn four(note: &[u8], offset: usize) -> [i32; 4] {
    [0, 4, 8, 12].map(|at| i32::from_le_bytes(note[offset + at..][..4].try_into().unwrap()))
}

/// As in the kernel's own cores, all numbers are those of the process's namespace, and 0 for what is outside of it.
#[test]
fn cores_have_the_numbers_of_the_process_s_own_pid_namespace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can make PID namespaces");
        return;
    }
    const PRSTATUS: u32 = 1;
    const PRPSINFO: u32 = 3;
    let directory = tempdir().unwrap();
    let mut subject = Subject::start_in_pid_namespace(&["2", "3"]);
    let tasks = fs::read_dir(format!("/proc/{}/task", subject.pid())).unwrap().flatten();
    let mut threads: Vec<i32> = tasks
        .map(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
            numbers.split_whitespace().last().unwrap().parse().unwrap()
        })
        .collect();
    threads.sort_unstable();
    assert_eq!(threads[..2], [2, 3], "it is not the second process of its namespace");
    for mode in [&[][..], &["--snapshot"], &["--live"]] {
        let path = directory.path().join("core");
        subject.core(&[mode, &["--force"]].concat(), &path);
        let file = fs::read(&path).unwrap();
        let expected: Vec<[i32; 4]> = threads.iter().map(|thread| [*thread, 1, 0, 0]).collect();
        let found: Vec<[i32; 4]> = notes(&file, PRSTATUS).iter().map(|note| four(note, 32)).collect();
        assert_eq!(found, expected, "{mode:?}");
        let found: Vec<[i32; 4]> = notes(&file, PRPSINFO).iter().map(|note| four(note, 24)).collect();
        assert_eq!(found, [[2, 1, 0, 0]], "{mode:?}");
        subject.goes_on();
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "info threads"]);
        let Ok(output) = gdb.arg(Subject::program()).arg(&path).output() else {
            eprintln!("not run: gdb is not there");
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let shown = text.lines().filter_map(|line| line.split_once("LWP ")?.1.split_once(')'));
        let mut shown: Vec<i32> = shown.map(|(number, _)| number.parse().unwrap()).collect();
        shown.sort_unstable();
        let listed = text.rsplit("Target Id").next().unwrap().matches("LWP ").count();
        assert_eq!(listed, threads.len(), "gdb shows: {text}");
        shown.dedup();
        assert_eq!(shown, threads, "gdb shows: {text}");
    }
}

/// Files in /proc would be those of one process, and system calls would reach another.
#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can make PID namespaces");
        return;
    }
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    for mode in [&["core"][..], &["core", "--snapshot"], &["core", "--live"]] {
        let mut command = subject.tool_among_other_processes(mode);
        let output = command.arg(subject.pid()).arg(directory.path().join("core")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{mode:?}: {text}");
        assert_eq!(
            text.trim_end(),
            "pagehaul: /proc is of another PID namespace; mount /proc here (mount -t proc proc /proc), or run pagehaul \
             where it is mounted",
            "{mode:?}"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{mode:?}: a file is left");
        subject.goes_on();
    }
}

fn decompressed(path: &std::path::Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let mut out = Vec::with_capacity(1 << 30);
    zstd_safe::decompress(&mut out, &bytes).expect("any zstd decompresses it");
    out
}

#[test]
fn cores_are_of_one_moment_and_the_process_goes_on() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["20", "3"]);
    let (plain, frames) = (directory.path().join("core"), directory.path().join("core.zst"));
    let said = subject.core(&[], &plain);
    for part in ["4 threads", "pause ", "ms (stopped)", "of zeros", "as ELF"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let bytes = fs::read(&plain).unwrap();
    assert_is_core_of(&subject, &bytes, true);
    let meta = fs::metadata(&plain).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
    assert!(blocks < 20 << 20, "{blocks} bytes on the disk: zeros and untouched pages are no holes");
    subject.goes_on();
    subject.core(&[], &frames);
    assert_is_core_of(&subject, &decompressed(&frames), true);
    assert!(fs::metadata(&frames).unwrap().len() < 12 << 20);
    subject.goes_on();
    // A stream, and a buffer that is too small for it all.
    let output = tool(&["core", "-q", "--max-memory", "4M", &subject.pid(), "-"]).output().unwrap();
    assert!(output.status.success());
    assert_is_core_of(&subject, &output.stdout, true);
    subject.goes_on();
}

#[test]
fn a_buffer_that_is_filled_again_and_again_loses_nothing() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["250", "2"]);
    for memory in ["70M", "100M", "150M"] {
        let path = directory.path().join("core");
        let said = subject.core(&["--force", "--max-memory", memory], &path);
        assert!(said.contains("stayed stopped until the rest was written"), "{said}");
        assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
        subject.goes_on();
    }
}

#[test]
fn sparse_mappings_take_what_exists_in_them() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1", "sparse"]);
    let said = subject.core(&["--json", "--max-memory", "1G"], &directory.path().join("core.zst"));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {said}"));
    assert!(number("core_bytes") > 2 << 40, "the mappings of 1 TiB are not in it");
    assert!(number("buffer_bytes") < 128 << 20, "{} bytes were set aside", number("buffer_bytes"));
    assert!(number("page_bytes") < 32 << 20, "{} bytes were copied", number("page_bytes"));
    subject.goes_on();
}

#[test]
fn live_cores_have_the_registers_and_memory_that_does_not_change() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["20", "3"]);
    let path = directory.path().join("core");
    let said = subject.core(&["--live"], &path);
    assert!(said.contains("(live)") && said.contains("not of one moment"), "{said}");
    assert_is_core_of(&subject, &fs::read(&path).unwrap(), false);
    subject.goes_on();
}

#[test]
fn kinds_are_included_and_excluded() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["10", "1"]);
    let size = |arguments: &[&str], name: &str| {
        let path = directory.path().join(name);
        subject.core(arguments, &path);
        fs::metadata(&path).unwrap().len()
    };
    let usual = size(&[], "usual");
    assert!(size(&["--include", "file"], "more") > usual + (1 << 20), "libraries' text is included");
    assert!(size(&["--exclude", "anonymous"], "less") < usual - (10 << 20), "the heap is excluded");
    subject.goes_on();
    let output = tool(&["core", "--include", "oops", &subject.pid(), "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("anon-private"));
}

#[test]
fn the_report_is_json_too() {
    let directory = tempdir().unwrap();
    let subject = Subject::start(&["10", "2"]);
    let said = subject.core(&["--json", "-t", "3"], &directory.path().join("core.zst"));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["outcome"]["how"], "complete");
    assert_eq!(report["threads_saved"], 3);
    assert_eq!(report["codec"], "zstd:3");
    assert!(report["seconds"]["pause"].as_f64().unwrap() > 0.0);
    assert!(report["page_bytes"].as_u64().unwrap() >= 10 << 20);
}

#[test]
fn processes_that_cannot_be_saved_get_one_sentence() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("core");
    let fails = |pid: &str, part: &str| {
        let output = tool(&["core", pid]).arg(&path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(part), "no {part:?} in {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(!path.exists());
    };
    fails("999999999", "there is no process 999999999");
    fails("0", "there is no process 0");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        fails("2", "kernel thread");
    }
    // A zombie: it has ended, and is not waited for before it is examined.
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    let pid = child.id().to_string();
    while !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z") {
        std::thread::yield_now();
    }
    fails(&pid, "is a zombie");
    child.wait().unwrap();
    // A thread's id.
    let mut subject = Subject::start(&["1", "1"]);
    let threads = fs::read_dir(format!("/proc/{}/task", subject.pid())).unwrap();
    let mut ids = threads.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let other = ids.find(|tid| *tid != subject.pid()).unwrap();
    fails(&other, "is a thread of process");
    // Only one may trace.
    subject.while_traced(|pid| fails(pid, "is traced by process"));
    subject.goes_on();
}

/// By another process: a child that another test starts would inherit the descriptor, and a file open for writing cannot be
/// executed.
fn copy_program(program: impl AsRef<std::ffi::OsStr>, copy: &std::path::Path) {
    assert!(Command::new("cp").arg(program).arg(copy).status().unwrap().success());
}

#[test]
fn other_users_processes_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut subject = Subject::start(&["1", "1"]);
    let directory = tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = directory.path().join("pagehaul");
    copy_program(BINARY, &copy);
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args(["core", &subject.pid()])
        .arg(directory.path().join("core"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it belongs to user 0, this is user 65534"), "{said}");
    subject.goes_on();
}

#[test]
fn outputs_that_could_do_harm_are_refused() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let path = directory.path().join("core");
    fs::write(&path, "precious").unwrap();
    for (arguments, code, part) in [
        (vec!["core".into(), subject.pid(), path.display().to_string()], 1, "--force"),
        (vec!["core".into(), subject.pid(), directory.path().display().to_string()], 1, "is a directory"),
        (vec!["core".into(), subject.pid(), "/nonexistent/core".into()], 1, "/nonexistent/core"),
        (vec!["core".into(), "--json".into(), subject.pid(), "-".into()], 2, "standard output"),
        (vec!["core".into(), "-c".into(), "lzo".into(), subject.pid(), "x".into()], 2, "zstd or none"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = tool(&arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    subject.goes_on();
}

#[test]
fn seccomp_does_not_matter() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["10", "2", "seccomp"]);
    let path = directory.path().join("core");
    subject.core(&[], &path);
    assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
    subject.goes_on();
}

#[test]
fn threads_that_come_and_go_meanwhile_do_not_matter() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["5", "2", "spawn"]);
    for _ in 0..10 {
        subject.core(&["--force"], &directory.path().join("core"));
        subject.goes_on();
    }
}

#[test]
fn a_thread_that_cannot_be_stopped_is_named_and_everything_goes_on() {
    let directory = tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut subject = Subject::start(&["5", "2", "vfork", fifo.to_str().unwrap()]);
    subject.wait_for_any_thread_in_state('D');
    for mode in [&[][..], &["--live"][..], &["--snapshot"][..]] {
        let path = directory.path().join("core");
        let output = tool(&["core"]).args(mode).arg(subject.pid()).arg(&path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("did not stop within 5 s (state D"), "{said}");
        assert!(!path.exists());
        subject.goes_on();
    }
    // It gets on, and so it can be saved.
    fs::write(&fifo, "go").unwrap();
    subject.wait_for_threads(3);
    let path = directory.path().join("core");
    subject.core(&[], &path);
    assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
    subject.goes_on();
    subject.has_no_children();
}

#[test]
fn a_stopped_process_stays_stopped() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["5", "2"]);
    let path = directory.path().join("core");
    subject.signal(libc::SIGSTOP);
    subject.wait_for_state('T');
    subject.core(&[], &path);
    // Letting go is not waited for by the kernel: threads pass through a run to their stop.
    subject.wait_for_state('T');
    assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
    subject.signal(libc::SIGCONT);
    subject.goes_on();
}

/// A run that cannot continue: its output is a pipe without a reader, its buffer is full, the process stopped.
fn blocked(subject: &Subject) -> std::process::Child {
    let mut child = tool(&["core", "-q", "--max-memory", "1M", &subject.pid(), "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Something is coming, so the process is stopped; the rest does not fit the pipe and all buffers.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4096]).unwrap();
    subject.wait_for_state('t');
    child
}

fn outcome(mut child: std::process::Child) -> (Option<i32>, String) {
    // The rest of what was on its way.
    let mut out = child.stdout.take().unwrap();
    out.read_to_end(&mut Vec::new()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_signal_lets_the_process_go_and_says_so() {
    let mut subject = Subject::start(&["60", "2"]);
    let child = blocked(&subject);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // Although the pipe has no reader.
    subject.goes_on();
    let (code, said) = outcome(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("stopped by a signal") && said.contains("incomplete"), "{said}");
    subject.goes_on();
}

#[test]
fn a_process_that_is_killed_meanwhile_ends_the_run() {
    let subject = Subject::start(&["60", "2"]);
    let child = blocked(&subject);
    subject.signal(libc::SIGKILL);
    let (code, said) = outcome(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("ended while its memory was being copied"), "{said}");
}

#[test]
fn a_reader_that_goes_away_lets_the_process_go() {
    let mut subject = Subject::start(&["60", "2"]);
    let mut child = blocked(&subject);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("Broken pipe"), "{said}");
    subject.goes_on();
}

#[test]
fn a_full_disk_leaves_a_marked_core_and_the_process_running() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["40", "2"]);
    for name in ["core", "core.zst"] {
        let script = format!(
            "{BINARY} core -q {} disk/{name}; code=$?; cp disk/{name} {name}; exit $code",
            subject.pid()
        );
        let output = with_small_disk(directory.path(), &script);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("No space left on device") && said.contains("marked"), "{said}");
        let bytes = fs::read(directory.path().join(name)).unwrap();
        // In frames, the header follows 4 bytes of magic, 2 of descriptors, 8 of size and 3 of the block.
        let header = if name == "core" { 0 } else { 17 };
        assert_eq!(&bytes[header..header + 4], b"\x7fELF");
        assert_eq!(bytes[header + 48], 1, "e_flags tells that it is incomplete");
        subject.goes_on();
    }
}

#[test]
fn an_incomplete_core_does_not_replace_another() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["40", "2"]);
    // With a file that is to be replaced.
    let script = format!(
        "cd disk && echo precious > core && \
         {BINARY} core -q --force {} core; code=$?; cat core; {BINARY} info core.incomplete; exit $code",
        subject.pid()
    );
    let output = with_small_disk(directory.path(), &script);
    let (out, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("core.incomplete is incomplete and marked so"), "{said}");
    assert!(out.starts_with("precious\n") && out.contains("complete      no"), "{out}");
    subject.goes_on();
}

#[test]
fn killing_it_at_any_moment_leaves_the_process_as_it_was() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["60", "3"]);
    for mode in [&[][..], &["--max-memory", "4M"][..], &["--snapshot"][..]] {
        let mut ended = 0;
        for step in 1..=50 {
            // From before the stop to after the end, whatever the machine's speed is now.
            let after = format!("{:.4}", f64::from(step * step) * 0.0002);
            let status = Command::new("timeout")
                .args(["-s", "KILL", &after, BINARY, "core", "-q", "--force"])
                .args(mode)
                .arg(subject.pid())
                .arg(directory.path().join("core.zst"))
                .status()
                .unwrap();
            subject.goes_on();
            ended += usize::from(status.success());
            if ended == 3 {
                break;
            }
        }
    }
    subject.has_no_children();
}

#[test]
fn signals_to_the_helper_of_a_snapshot_do_not_reach_the_process() {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["20", "3"]);
    subject.goes_on();
    let masks = subject.signal_masks();
    let path = directory.path().join("core");
    let mut whole = [0, 0];
    for round in 0..60u32 {
        let mut child = tool(&["core", "-q", "--force", "--snapshot", &subject.pid()])
            .arg(&path)
            .process_group(0)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let parent = Pid::from_child(&child);
        let children = format!("/proc/{parent}/task/{parent}/children");
        // It may have come and gone, or not come to be.
        let helper = loop {
            let first = fs::read_to_string(&children).unwrap_or_default();
            let first = first.split_whitespace().next().and_then(|pid| pid.parse().ok());
            if let Some(helper) = first.and_then(Pid::from_raw) {
                break Some(helper);
            }
            if child.try_wait().unwrap().is_some() {
                break None;
            }
        };
        // From its first instruction to after its end, whatever the machine's speed is now.
        std::thread::sleep(std::time::Duration::from_micros(u64::from(round * round * 10)));
        let both = round % 3 != 0;
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
            // Any of them may be gone already.
            let Some(helper) = helper else { break };
            let _ = if round % 2 == 0 {
                kill_process(helper, signal)
            } else {
                kill_process_group(helper, signal)
            };
            if both && signal == Signal::TERM {
                let _ = kill_process_group(parent, signal);
            }
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        subject.goes_on();
        assert_eq!(subject.signal_masks(), masks, "round {round}");
        let code = output.status.code();
        if both {
            assert!(matches!(code, Some(0 | 1 | 3)), "round {round}: {:?} {said}", output.status);
        } else {
            assert_eq!(code, Some(0), "round {round}: {said}");
        }
        if code == Some(0) {
            whole[usize::from(both)] += 1;
            assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
        } else {
            assert_eq!(said.trim_end().lines().count(), 1, "round {round}: {said}");
        }
    }
    assert!(whole[0] == 20 && whole[1] < 40, "signals came too late to matter: {whole:?}");
    subject.has_no_children();
}

const MODES: [&[&str]; 4] = [&[], &["-c", "zstd"], &["--snapshot"], &["--live"]];

#[test]
fn a_process_goes_on_where_no_thread_can_be_started() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["5", "2"]);
    let path = directory.path().join("core");
    for mode in MODES {
        let mut command = tool(&["core", "-t", "4"]);
        command.args(mode).arg(subject.pid()).arg(&path);
        let output = no_threads(&mut command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{mode:?}: {said}");
        assert!(said.contains("cannot start a thread"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(!path.exists());
        subject.goes_on();
    }
    subject.has_no_children();
}

/// The number of a user's processes, without one: snapshots that have ended, until init has waited for them.
fn others_of(user: u32, pid: &str) -> u64 {
    let entries = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes()[0].is_ascii_digit() && name != pid
    });
    entries.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == user)).count() as u64
}

#[test]
fn cores_are_written_with_the_threads_there_are() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = directory.path().join("pagehaul");
    copy_program(BINARY, &copy);
    // Other users may not enter the directory of the original.
    let program = directory.path().join("subject");
    copy_program(Subject::program(), &program);
    let path = directory.path().join("core");
    let mut threads = std::collections::BTreeSet::new();
    for (user, mode) in (1_000_000_000 + 4 * std::process::id()..).zip(MODES) {
        // A user who has nothing else.
        let mut subject = Subject::start_as(user, &program, &["5", "2"]);
        // Its three threads, this program, and so many more. A snapshot takes three processes besides.
        for more in 0..14 {
            let mut command = Command::new(&copy);
            command.args(["core", "--json", "--force", "-t", "4"]).args(mode).arg(subject.pid()).arg(&path);
            let most = others_of(user, &subject.pid()) + 3 + 1 + more;
            let output = few_threads(&mut command, user, most).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            subject.goes_on();
            match output.status.code() {
                Some(0) => {
                    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                    threads.insert(report["threads"].as_u64().unwrap());
                    let bytes =
                        if mode.contains(&"zstd") { decompressed(&path) } else { fs::read(&path).unwrap() };
                    assert_is_core_of(&subject, &bytes, !mode.contains(&"--live"));
                }
                code => {
                    assert_eq!(code, Some(1), "{mode:?} with {more} more: {said}");
                    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
                    // Four threads; those that have just ended may count still.
                    let enough = if mode.contains(&"--snapshot") { 13 } else { 9 };
                    assert!(more < enough, "{mode:?} with {more} more: {said}");
                }
            }
        }
        subject.has_no_children();
    }
    assert!(threads.first() < Some(&4) && threads.last() == Some(&4), "threads that copied: {threads:?}");
}

/// Without CAP_KILL the copies could not be killed: the process would wait for their end, stopped.
#[test]
fn a_snapshot_that_could_not_be_killed_is_not_made() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can run pagehaul as another user.
    }
    let directory = tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = directory.path().join("pagehaul");
    copy_program(BINARY, &copy);
    let mut subject = Subject::start(&["5", "2"]);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", "--inh-caps=+sys_ptrace,+dac_read_search"])
        .args(["--ambient-caps=+sys_ptrace,+dac_read_search", "timeout", "60"])
        .arg(&copy)
        .args(["core", "--snapshot", &subject.pid()])
        .arg(directory.path().join("core"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_KILL"), "{said}");
    subject.goes_on();
    subject.has_no_children();
}

#[test]
fn snapshots_are_of_one_moment_and_leave_nothing_behind() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["20", "3"]);
    let path = directory.path().join("core");
    for _ in 0..10 {
        let said = subject.core(&["--snapshot", "--force"], &path);
        assert!(said.contains("(snapshot)"), "{said}");
        assert_is_core_of(&subject, &fs::read(&path).unwrap(), true);
        subject.goes_on();
        subject.has_no_children();
    }
}

#[test]
fn system_calls_go_on_after_a_snapshot() {
    let directory = tempdir().unwrap();
    // Calls that are started again with what is left of their time, or as they were; and one that fails if they are not.
    for script in ["sleep 2; echo done", "read line; echo $line", "sh -c 'sleep 2' & wait; echo done"] {
        let mut child = Command::new("sh")
            .args(["-c", &format!("echo ready; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 6]).unwrap();
        for _ in 0..5 {
            let pid = child.id().to_string();
            let path = directory.path().join("core");
            let run = tool(&["core", "-q", "--force", "--snapshot", &pid]).arg(path).output().unwrap();
            // On a busy machine it may have slept to its end.
            if child.try_wait().unwrap().is_some() {
                break;
            }
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        }
        let written = std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"done\n");
        assert!(written.is_ok() || child.wait().unwrap().success());
        let mut said = String::new();
        out.read_to_string(&mut said).unwrap();
        assert_eq!(said, "done\n", "{script}");
        assert!(child.wait().unwrap().success());
    }
}

/// Interrupted in the middle of a computation, a thread is made to make system calls, which change registers.
#[test]
#[cfg(target_arch = "aarch64")]
fn registers_are_in_the_core_and_survive_snapshots() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("core");
    for mode in ["vectors", "registers"] {
        let mut subject = Subject::start(&["1", "1", mode]);
        for _ in 0..20 {
            subject.core(&["--snapshot", "--force"], &path);
        }
        subject.goes_on();
        subject.has_no_children();
    }
    let file = fs::read(&path).unwrap();
    let known = (0..29).filter(|n| *n != 19).map(|n| (n, 0x1000 + n as u64));
    let is_known =
        |note: &[u8]| known.clone().all(|(n, value)| note[112 + 8 * n..][..8] == value.to_le_bytes());
    let core = Core::parse(file.as_slice()).unwrap();
    let mut found = 0;
    for header in core.elf_program_headers() {
        let Ok(Some(mut notes)) = header.notes(object::LittleEndian, file.as_slice()) else { continue };
        while let Some(note) = notes.next().unwrap() {
            found += u32::from(note.n_type(object::LittleEndian).0 == 1 && is_known(note.desc()));
        }
    }
    assert_eq!(found, 1, "threads with known registers");
}

#[test]
fn seccomp_filters_do_not_kill_a_process_that_is_made_to_fork() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["10", "2", "seccomp"]);
    let path = directory.path().join("core");
    let output = tool(&["core", "--snapshot", &subject.pid()]).arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // Who may not suspend the filters must not fork.
    assert!(output.status.success() || said.contains("seccomp filters could kill it"), "{said}");
    subject.goes_on();
    subject.has_no_children();
}

#[test]
fn a_killed_run_takes_its_snapshot_along() {
    let mut subject = Subject::start(&["61", "2"]);
    let mut child =
        tool(&["core", "-q", "--snapshot", &subject.pid(), "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    // The snapshot is being written, and the reader stops reading.
    out.read_exact(&mut [0; 4096]).unwrap();
    subject.goes_on();
    let copies = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let link = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
        let mine = fs::read(format!("/proc/{}/cmdline", subject.pid())).unwrap();
        all.filter_map(link).filter(|line| *line == mine).count()
    };
    assert!(copies() >= 2, "no snapshot is there");
    child.kill().unwrap();
    child.wait().unwrap();
    // Its helper notices, and kills the snapshot.
    drop(out);
    while copies() > 1 {
        std::thread::yield_now();
    }
    subject.goes_on();
    subject.has_no_children();
}
