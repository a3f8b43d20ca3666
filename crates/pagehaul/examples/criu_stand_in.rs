//! Stands in for CRIU in tests: freezes a process tree, speaks the image streamer's protocol with images of its own making,
//! runs action scripts, and leaves the processes as it was told to. `lab validate-process` saves and restores real
//! processes with the real one.
//!
//! What it does is chosen by the environment:
//! PRETEND     version (what `--version` says), fail (complains in its log, before it connects), endless (pages never end),
//!             tracks (the kernel can tell which pages change), signalled (is sent what ends programs while it saves), lacks
//!             (`check` complains), corrected (saves inet sockets), gift (has an image in its pipe without a copy, as CRIU has
//!             memory, and overwrites it once the processes go on), no-script (runs no action script), silent (fails without a
//!             complaint), idle (ends with success and does nothing), hang, hang-check (does not end once it saves or restores,
//!             or when asked what it can do: writes its PID to `hangs` in MEET first, or that of a process that it has made),
//!             killed (while it restores a process, whose PID it writes to RESTARTED), no-pid (names no restarted process), pid N
//!             (names this one), files (cannot restore from pipes)
//! TREE        PIDs in the images' process tree, separated by commas
//! PAGES       MiB of pages
//! GROWTH      processes by which the tree has to grow before it is frozen
//! MEET        directory in which it writes `announced` once the freeze has begun, and waits for `done` before it freezes
//! RESTARTED   file that a restart writes "whole" or "broken" to, after a look at the images it was given
//! IMAGES      directory with more images
//! MEMORY      file that gets the memory of the first process, which is then saved as CRIU does, and compared by a restart

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "criu_stand_in/gift.rs"]
mod gift;
#[path = "criu_stand_in/memory.rs"]
mod memory;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpid, kill_process};

const MIB: usize = 1 << 20;

fn main() {
    // With it, Rust's handler of failed allocations waits for itself if it fails to allocate; CRIU has no such handler.
    // SAFETY: no other thread is there yet.
    unsafe { std::env::remove_var("RUST_BACKTRACE") };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pretend = std::env::var("PRETEND").unwrap_or_default();
    let after = |name: &str| arguments.iter().skip_while(|word| *word != name).nth(1).map(PathBuf::from);
    if arguments.iter().any(|word| word == "--version") {
        println!("Version: {}", pretend.strip_prefix("version ").unwrap_or("4.1.1"));
        return;
    }
    if arguments[0] == "check" {
        if pretend == "hang-check" {
            hang(std::process::id());
        }
        if arguments.iter().any(|word| word == "mem_dirty_track") {
            std::process::exit(i32::from(pretend != "tracks"));
        }
        if pretend == "lacks" {
            eprintln!("Error (x.c:1): no such diagnosis\nLooks bad");
        }
        std::process::exit(i32::from(pretend == "lacks"));
    }
    let is_streamed = arguments.iter().any(|word| word == "--stream");
    if arguments[0] == "dump" && !is_streamed {
        // A trial of what it can save.
        std::process::exit(i32::from(pretend != "corrected"));
    }
    let (directory, log) = (after("-D").unwrap(), after("-o").unwrap());
    let log = directory.join(log);
    complain_in(log.clone());
    if pretend == "idle" {
        return;
    }
    if pretend == "fail" {
        fs::write(log, "(00.1) Error (x.c:7): no such luck\n").unwrap();
        std::process::exit(1);
    }
    if pretend == "silent" {
        fs::write(&log, "(00.1) Seized task 7\n").unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    match arguments.first().map(String::as_str) {
        Some("dump") => {
            if pretend == "signalled" {
                for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
                    kill_process(getpid(), signal).unwrap();
                }
            }
            let mut socket = UnixStream::connect(directory.join("streamer-capture.sock")).unwrap();
            let root = after("-t").unwrap().to_str().unwrap().parse().unwrap();
            memory::announce_freeze(root);
            if let Some(directory) = std::env::var_os("MEET").map(PathBuf::from).filter(|_| pretend != "hang")
            {
                fs::write(directory.join("announced"), "").unwrap();
                while !directory.join("done").exists() {
                    std::thread::yield_now();
                }
            }
            let frozen = freeze(root);
            if pretend == "hang" {
                let _pipe = announce(&mut socket, "pages-1.img").unwrap();
                hang(std::process::id());
            }
            let scripts =
                arguments.windows(2).filter(|pair| pair[0] == "--action-script").map(|pair| &pair[1]);
            let scripts = scripts.filter(|_| pretend != "no-script");
            let gift = (pretend == "gift").then(|| gift::give(announce(&mut socket, gift::NAME).unwrap()));
            let saved = dump(&mut socket, pretend == "endless", root)
                && scripts.rev().all(|script| {
                    run(script, pretend == "script-killed").unwrap_or_else(|error| {
                        let _ = fs::write(&log, format!("(00.1) Error (stand-in): {script}: {error}\n"));
                        false
                    })
                });
            // The processes go on, and write to their memory.
            gift.into_iter().for_each(gift::overwrite);
            let is_left_stopped = arguments.iter().any(|word| word == "--leave-stopped");
            if !saved || !is_left_stopped {
                signal(&frozen, Signal::CONT);
            }
            std::process::exit(i32::from(!saved));
        }
        Some("restore") => {
            if pretend == "killed" {
                // What it has made so far has its socket open.
                let socket = UnixStream::connect(directory.join("streamer-serve.sock")).unwrap();
                // Lives on: this process is killed before it could wait.
                #[expect(clippy::zombie_processes)]
                let child = Command::new("sleep").arg("600").stdin(OwnedFd::from(socket)).spawn().unwrap();
                fs::write(std::env::var_os("RESTARTED").unwrap(), child.id().to_string()).unwrap();
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            if pretend == "hang" {
                let _socket = UnixStream::connect(directory.join("streamer-serve.sock")).unwrap();
                hang(Command::new("sleep").arg("600").spawn().unwrap().id());
            }
            if pretend == "files" {
                assert!(!is_streamed, "Can't read pages data");
            }
            let from = if is_streamed {
                From::Socket(UnixStream::connect(directory.join("streamer-serve.sock")).unwrap())
            } else {
                From::Directory(directory)
            };
            restore(from);
            // Some process that lives: nothing is really restarted.
            let parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid).to_string();
            let pid = pretend.strip_prefix("pid ").unwrap_or(&parent);
            if pretend != "no-pid" {
                fs::write(after("--pidfile").unwrap(), pid).unwrap();
            }
        }
        _ => std::process::exit(2),
    }
}

/// Says that it hangs, and does.
fn hang(pid: u32) -> ! {
    let directory = PathBuf::from(std::env::var_os("MEET").unwrap());
    fs::write(directory.join("unnamed"), pid.to_string()).unwrap();
    fs::rename(directory.join("unnamed"), directory.join("hangs")).unwrap();
    loop {
        std::thread::park();
    }
}

/// Has a panic end in the log, as all that CRIU complains of does: nobody reads its standard error.
fn complain_in(log: PathBuf) {
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.to_string().replace('\n', " ");
        let _ = fs::write(&log, format!("(00.1) Error (stand-in): {text}\n"));
    }));
}

/// Stops a process and its descendants, those too that are made meanwhile. Returns the ones that ran.
fn freeze(root: i32) -> Vec<i32> {
    let growth: usize = std::env::var("GROWTH").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let first = tree(root).len();
    while tree(root).len() < first + growth {
        std::thread::yield_now();
    }
    let mut frozen = Vec::new();
    loop {
        let running: Vec<i32> = tree(root).into_iter().filter(|pid| !is_stopped(*pid)).collect();
        if running.is_empty() {
            return frozen;
        }
        signal(&running, Signal::STOP);
        frozen.extend(running.into_iter().filter(|pid| !frozen.contains(pid)).collect::<Vec<_>>());
    }
}

fn tree(root: i32) -> Vec<i32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next) {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let lists: Vec<String> = lists.collect();
        tree.extend(
            lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse::<i32>().unwrap()),
        );
        next += 1;
    }
    tree
}

/// Whether all threads of a process are stopped, or have ended.
fn is_stopped(pid: i32) -> bool {
    let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|fields| fields.is_empty() || fields.starts_with(['T', 'Z', 'X']))
    })
}

fn signal(pids: &[i32], signal: Signal) {
    for &pid in pids {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
    }
}

/// Runs an action script as CRIU does, which counts one that a signal ended as successful.
fn run(script: &str, kill: bool) -> std::io::Result<bool> {
    let mut child = Command::new(script).env("CRTOOLS_SCRIPT_ACTION", "post-dump").spawn()?;
    if kill {
        child.kill()?;
    }
    Ok(child.wait()?.code().is_none_or(|code| code == 0))
}

/// Sends all images. Returns whether somebody took them.
fn dump(socket: &mut UnixStream, endless: bool, root: i32) -> bool {
    if let Some(path) = std::env::var_os("MEMORY") {
        let (list, pages) = memory::save(root, Path::new(&path));
        for (name, content) in [(memory::LIST, list), (memory::PAGES, pages)] {
            let name = name.replace("PID", &root.to_string());
            let Ok(mut pipe) = announce(socket, &name) else { return false };
            if pipe.write_all(&content).is_err() {
                return false;
            }
        }
    }
    images().into_iter().all(|(name, content)| {
        let Ok(mut pipe) = announce(socket, &name) else { return false };
        while endless && name.starts_with("pages") {
            // Until no process listens any more.
            if pipe.write_all(&content).is_err() {
                return false;
            }
        }
        pipe.write_all(&content).is_ok()
    })
}

/// Announces a file, and gives the end of the pipe to write it to.
fn announce(socket: &mut UnixStream, name: &str) -> std::io::Result<fs::File> {
    socket.write_all(&request(name))?;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    send(socket, read)?;
    Ok(fs::File::from(write))
}

/// Where images come from.
enum From {
    Socket(UnixStream),
    Directory(PathBuf),
}

fn restore(mut from: From) {
    let mut whole = true;
    for (name, content) in images() {
        whole &= fetch(&mut from, &name).is_some_and(|found| found == content);
    }
    whole &= fetch(&mut from, "missing.img").is_none();
    if std::env::var("PRETEND").is_ok_and(|pretend| pretend == "gift") {
        whole &= fetch(&mut from, gift::NAME).is_some_and(|found| gift::is_old(&found));
    }
    if let Some(path) = std::env::var_os("MEMORY") {
        let root = std::env::var("TREE").unwrap();
        let [list, pages] = [memory::LIST, memory::PAGES]
            .map(|name| fetch(&mut from, &name.replace("PID", &root)).expect("an image of the memory"));
        let differences = memory::differences(Path::new(&path), &list, &pages);
        fs::write(PathBuf::from(&path).with_extension("differences"), differences.join("\n")).unwrap();
        whole &= differences.is_empty();
    }
    fs::write(std::env::var("RESTARTED").unwrap(), if whole { "whole" } else { "broken" }).unwrap();
}

fn fetch(from: &mut From, name: &str) -> Option<Vec<u8>> {
    let socket = match from {
        From::Socket(socket) => socket,
        From::Directory(directory) => return fs::read(directory.join(name)).ok(),
    };
    socket.write_all(&request(name)).unwrap();
    let mut reply = [0; 6];
    socket.read_exact(&mut reply).unwrap();
    if reply != [2, 0, 0, 0, 8, 1] {
        return None;
    }
    let (read, write) = rustix::pipe::pipe().unwrap();
    send(socket, write).unwrap();
    let mut content = Vec::new();
    fs::File::from(read).read_to_end(&mut content).unwrap();
    Some(content)
}

/// A length, and a message whose field 1 is a name.
fn request(name: &str) -> Vec<u8> {
    let mut out = (name.len() as u32 + 2).to_le_bytes().to_vec();
    out.extend([10, name.len() as u8]);
    out.extend(name.bytes());
    out
}

/// One byte, and with it a descriptor.
fn send(socket: &UnixStream, descriptor: OwnedFd) -> std::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    assert!(buffer.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A process tree, pages that do not compress, an empty image, and those of a directory.
fn images() -> Vec<(String, Vec<u8>)> {
    let mut tree = vec![0x19, 0x43, 0x56, 0x54, 0x30, 0x30, 0x27, 0x50];
    for pid in std::env::var("TREE").unwrap_or_default().split(',').filter_map(|pid| pid.parse::<u64>().ok())
    {
        // Field 1, the process.
        let mut entry = vec![8];
        let mut rest = pid;
        while rest >= 0x80 {
            entry.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        entry.push(rest as u8);
        tree.extend((entry.len() as u32).to_le_bytes());
        tree.extend(entry);
    }
    let mib: usize = std::env::var("PAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut state = 1u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    // Not a whole number of blocks.
    let pages: Vec<u8> = (0..mib * MIB / 8 + 512).flat_map(|_| word()).collect();
    let mut images = vec![("pstree.img", tree), ("pages-1.img", pages), ("empty.img", Vec::new())]
        .into_iter()
        .map(|(name, content)| (name.to_owned(), content))
        .collect::<Vec<_>>();
    let more = std::env::var_os("IMAGES").map(|directory| fs::read_dir(directory).unwrap());
    for entry in more.into_iter().flatten() {
        let entry = entry.unwrap();
        images.push((entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    }
    images
}
