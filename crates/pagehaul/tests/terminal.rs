//! Reports on a terminal: colours, a pager, and lines that fit.
#![cfg(all(feature = "census", feature = "kdump-setup", feature = "stalls"))]

mod common {
    pub mod setup;
}

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use common::setup::Setup;

/// A terminal, and what is printed on it.
struct Terminal {
    slave: File,
    /// What has come so far.
    sent: Arc<(Mutex<Vec<u8>>, Condvar)>,
    reader: JoinHandle<()>,
}

impl Terminal {
    fn new(columns: u16) -> Self {
        // SAFETY: no pointers.
        let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
        assert!(master >= 0);
        // SAFETY: the descriptor is new.
        let mut master = unsafe { File::from_raw_fd(master) };
        let (fd, mut name) = (master.as_raw_fd(), [0; 64]);
        let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the buffer has the length that is passed, and the size is one for this request.
        unsafe {
            assert_eq!((libc::grantpt(fd), libc::unlockpt(fd)), (0, 0));
            assert_eq!(libc::ptsname_r(fd, name.as_mut_ptr(), name.len()), 0);
            assert_eq!(libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size), 0);
        }
        // SAFETY: ptsname_r ended it with a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap();
        // What other threads start does not inherit it: it would hold the terminal open.
        let slave =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap();
        let sent = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let copy = Arc::clone(&sent);
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            // EIO: no process has the terminal open any more.
            while let Ok(read @ 1..) = master.read(&mut part) {
                copy.0.lock().unwrap().extend(&part[..read]);
                copy.1.notify_all();
            }
        });
        Self { slave, sent, reader }
    }

    /// Starts a command on the terminal.
    fn start(&self, command: &mut Command) -> Child {
        let slave = || self.slave.try_clone().unwrap();
        command.stdout(slave()).stderr(slave()).spawn().unwrap()
    }

    /// Runs a command there, and returns its exit status and what was printed.
    fn run(self, mut command: Command) -> (Option<i32>, String) {
        let status = self.start(&mut command).wait().unwrap();
        // It has copies of the terminal.
        drop(command);
        (status.code(), self.text())
    }

    /// Waits until this was printed.
    fn wait_for(&self, text: &str) {
        let has_it = |sent: &mut Vec<u8>| sent.windows(text.len()).any(|part| part == text.as_bytes());
        drop(self.sent.1.wait_while(self.sent.0.lock().unwrap(), |sent| !has_it(sent)).unwrap());
    }

    fn text(self) -> String {
        drop(self.slave);
        self.reader.join().unwrap();
        String::from_utf8(std::mem::take(&mut *self.sent.0.lock().unwrap())).unwrap().replace("\r\n", "\n")
    }
}

/// The lines that a terminal of this width has after all of `text`, without those that are empty.
fn screen(text: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut column) = (vec![Vec::new()], 0_usize, 0_usize);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => (row, column) = (row + 1, 0),
            '\u{1b}' => {
                assert_eq!(characters.next(), Some('['));
                let parameters: String =
                    characters.by_ref().take_while(|&next| !next.is_ascii_alphabetic()).collect();
                // `take_while` took the letter, which is before what is left.
                let letter = text[..text.len() - characters.as_str().len()].chars().last().unwrap();
                let number = parameters.parse().unwrap_or(1);
                match letter {
                    'A' => row = row.saturating_sub(number),
                    'B' => row += number,
                    'K' if parameters == "2" => rows[row].clear(),
                    'K' => rows[row].truncate(column),
                    'm' | 'h' | 'l' => {}
                    _ => panic!("a sequence that is not known: {parameters}{letter}"),
                }
            }
            _ => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                rows.resize(rows.len().max(row + 1), Vec::new());
                let width = rows[row].len().max(column + 1);
                rows[row].resize(width, ' ');
                rows[row][column] = character;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    let lines = rows.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// A pager.
const MARK: &str = "exec /bin/sed 's/^/> /'";

/// A command with the environment of a user who has set nothing but a terminal.
fn command(setup: &Setup, arguments: &[&str]) -> Command {
    let mut command = setup.command(arguments);
    for variable in ["NO_COLOR", "PAGER", "PAGEHAUL_PAGER", "LESS", "COLUMNS"] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm").env("PATH", setup.path("bin"));
    command
}

fn setup() -> Setup {
    let setup = Setup::crashed();
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    std::fs::create_dir(setup.path("bin")).unwrap();
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/");
    for (from, to) in [("guest-6.1.pht", "before.pht"), ("guest-7.2.pht", "after.pht")] {
        std::fs::copy(format!("{recordings}{from}"), setup.path(to)).unwrap();
    }
    setup
}

/// A pager with this shell script.
fn pager(setup: &Setup, name: &str, script: &str) {
    let path = setup.path("bin").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The text without escape sequences for colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
}

#[test]
fn colours_are_for_terminals_of_those_who_want_them() {
    let setup = setup();
    let piped = setup.succeeds(&["triage", "dump"]);
    assert!(!piped.contains('\u{1b}') && piped.contains("\nVerdict\n"), "{piped}");
    for (variable, value, coloured) in [
        ("LANG", "C", true),
        ("NO_COLOR", "", true),
        ("NO_COLOR", "1", false),
        ("TERM", "dumb", false),
        ("TERM", "", false),
    ] {
        let mut command = command(&setup, &["triage", "dump"]);
        command.env(variable, value);
        let (status, text) = Terminal::new(10_000).run(command);
        assert_eq!(status, Some(0), "{text}");
        assert_eq!(text.contains("\n\u{1b}[1mVerdict\u{1b}[0m\n"), coloured, "{variable}={value}: {text}");
        assert_eq!(plain(&text), piped, "{variable}={value}");
    }
    // JSON is for programs.
    let (_, text) = Terminal::new(80).run(command(&setup, &["triage", "dump", "--json"]));
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn severity_has_a_colour_in_kdump_check() {
    let setup = setup();
    std::fs::create_dir_all(setup.path("machine/proc")).unwrap();
    std::fs::write(setup.path("machine/proc/cmdline"), "root=/dev/vda1 ro\n").unwrap();
    let (status, text) =
        Terminal::new(80).run(command(&setup, &["kdump", "check", "-v", "--root", "machine"]));
    assert_eq!(status, Some(3), "{text}");
    for part in ["\u{1b}[1;31mPROBLEM\u{1b}[0m", "\u{1b}[1;31mBROKEN\u{1b}[0m", "     \u{1b}[32mfix"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn reports_go_through_the_users_pager() {
    let setup = setup();
    pager(&setup, "mark", MARK);
    pager(&setup, "less", "echo \"less $LESS\"; exec /bin/cat");
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = command(&setup, arguments);
        command.envs(environment.iter().copied()).env("NO_COLOR", "1");
        Terminal::new(10_000).run(command)
    };
    pager(&setup, "sh", "exec /bin/sh \"$@\"");
    let marked = |text: &str| text.lines().all(|line| line.starts_with("> ")) && text.lines().count() > 5;
    for arguments in [
        &["triage", "dump"][..],
        &["pages", "dump"],
        &["pages", "--owners", "dump"],
        &["reclaim", "report", "before.pht"],
        &["reclaim", "compare", "before.pht", "after.pht"],
    ] {
        let mark = setup.path("bin/mark").display().to_string();
        let (status, text) = run(arguments, &[("PAGER", "false"), ("PAGEHAUL_PAGER", &mark)]);
        assert!(status == Some(0) && marked(&text), "{arguments:?}: {text}");
        // No pager is asked for.
        let (status, unpaged) = run(arguments, &[("PAGER", "")]);
        assert!(status == Some(0) && !unpaged.contains("> "), "{arguments:?}: {unpaged}");
        assert_eq!(text.replace("> ", ""), unpaged);
        let (status, text) = run(arguments, &[]);
        assert_eq!((status, text), (Some(0), format!("less FRX\n{unpaged}")));
        // Nor is what cannot be run.
        for pager in ["cat", "/nonexistent", "nonexistent -x", "/etc/passwd", "/tmp"] {
            let ran = run(arguments, &[("PAGER", pager)]);
            assert_eq!(ran, (Some(0), unpaged.clone()), "{pager}");
        }
    }
    let (_, text) = run(&["pages", "dump"], &[("LESS", "S")]);
    assert!(text.starts_with("less S\n"), "{text}");
    // Of commands that print a line, and of what is not a terminal, nothing is paged.
    let (_, text) = run(&["--version"], &[]);
    assert!(text.starts_with("pagehaul "), "{text}");
    let output = command(&setup, &["triage", "dump"]).env("PAGER", MARK).output().unwrap();
    assert!(!String::from_utf8(output.stdout).unwrap().contains("> "));
}

#[test]
fn a_pager_changes_neither_the_status_nor_the_messages() {
    let setup = setup();
    pager(&setup, "sh", "exec /bin/sh \"$@\"");
    let mut cut = std::fs::read(setup.path("vmcore")).unwrap();
    cut.truncate(cut.len() - (1 << 20));
    std::fs::write(setup.path("cut"), cut).unwrap();
    let plain = setup.run(&["dmesg", "cut"]);
    let said = String::from_utf8(plain.stderr).unwrap();
    assert!(plain.status.code() == Some(3) && said.lines().count() > 0, "{said}");
    let run = |arguments: &[&str], pager: &str| {
        let mut command = command(&setup, arguments);
        command.env("PAGER", pager).env("NO_COLOR", "1");
        Terminal::new(10_000).run(command)
    };
    let (status, text) = run(&["dmesg", "cut"], MARK);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("> [") && text.contains("Kernel panic"), "{text}");
    // They are said where they can be read: after the pager has ended.
    let messages: Vec<&str> = text.lines().filter(|line| !line.starts_with("> ")).collect();
    assert_eq!(messages.join("\n"), said.trim_end(), "{text}");
    // The user has seen enough; nothing is printed.
    let (status, text) = run(&["triage", "dump", "--stacks"], "/usr/bin/head -n 1");
    assert!(status == Some(0) && text.lines().count() == 1, "{status:?} {text}");
    let (status, text) = run(&["triage", "missing"], MARK);
    assert!(status == Some(1) && text.starts_with("pagehaul: ") && !text.contains("> "), "{status:?} {text}");
}

#[test]
fn lines_fit_terminals_of_80_and_200_columns() {
    let setup = setup();
    for columns in [80, 200] {
        for arguments in [
            &["triage", "dump"][..],
            &["triage", "dump", "--section", "memory", "--section", "cpus"],
            &["pages", "dump"],
            &["pages", "--owners", "dump"],
            &["reclaim", "report", "before.pht"],
            &["reclaim", "compare", "before.pht", "after.pht"],
            &["kdump", "check", "-v", "--root", "."],
        ] {
            let (_, text) = Terminal::new(columns).run(command(&setup, arguments));
            for line in plain(&text).lines() {
                let is_word = !line.trim().contains(' ');
                assert!(line.chars().count() <= usize::from(columns) || is_word, "{arguments:?}: {line}");
            }
        }
    }
}

#[test]
fn an_interrupted_command_leaves_no_part_of_its_bar() {
    let setup = Setup::noisy();
    for columns in [80, 200] {
        let terminal = Terminal::new(columns);
        // A pipe of which only the dump's beginning is read holds the capture until the bar is there. So much of it has pages:
        // a signal before the first of them leaves no dump.
        let mut capture = command(&setup, &["capture", "-d", "0", "-c", "none", "vmcore", "-"]);
        let mut child =
            capture.stdout(Stdio::piped()).stderr(terminal.slave.try_clone().unwrap()).spawn().unwrap();
        drop(capture);
        let mut dump = child.stdout.take().unwrap();
        dump.read_exact(&mut vec![0; 1 << 20]).unwrap();
        terminal.wait_for("ETA");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        std::io::copy(&mut dump, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        let text = terminal.text();
        let lines = screen(&text, usize::from(columns));
        assert!(lines.concat().contains("stopped by a signal"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("ETA") || line.contains("[=")), "{lines:#?}");
    }
}
