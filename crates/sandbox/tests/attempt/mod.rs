//! What a process should not be able to do.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libc::c_long;

/// A descriptor that the process inherits.
pub const INHERITED: i32 = 77;

/// What attempts are about.
pub struct Fixture {
    /// A directory of the user.
    pub files: PathBuf,
    /// In it, what the process may read.
    pub input: PathBuf,
    /// In it, what the process may not.
    pub secret: PathBuf,
    /// The input, open since before.
    pub held: File,
    /// A process of the same user.
    pub victim: i32,
}

/// Returns an error number, or nothing if it was done.
type Done = Result<(), i32>;

pub struct Attempt {
    pub name: &'static str,
    /// Whether Landlock alone refuses it.
    pub is_about_files: bool,
    pub run: fn(&Fixture) -> Done,
}

const fn file(name: &'static str, run: fn(&Fixture) -> Done) -> Attempt {
    Attempt { name, is_about_files: true, run }
}

const fn call(name: &'static str, run: fn(&Fixture) -> Done) -> Attempt {
    Attempt { name, is_about_files: false, run }
}

fn done<T>(result: io::Result<T>) -> Done {
    result.map(drop).map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// Makes a system call.
fn raw(number: c_long, arguments: [usize; 6]) -> Done {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the pointers among the arguments are null, or lead to what lives through the call and is only read.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        _ => Ok(()),
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Makes a system call with a path.
fn with_path(number: c_long, path: &Path, rest: [usize; 3]) -> Done {
    let path = c(path);
    raw(number, [path.as_ptr() as usize, rest[0], rest[1], rest[2], 0, 0])
}

fn read(path: impl AsRef<Path>) -> Done {
    done(File::open(path).and_then(|mut file| io::Read::read(&mut file, &mut [0; 16])))
}

fn read_of_victim(fixture: &Fixture, name: &str) -> Done {
    read(format!("/proc/{}/{name}", fixture.victim))
}

const AT_FDCWD: usize = libc::AT_FDCWD as usize;
const NOWHERE: &str = "/nonexistent";

pub const ATTEMPTS: &[Attempt] = &[
    file("read another file", |f| read(&f.secret)),
    file("read the password file", |_| read("/etc/passwd")),
    file("list a directory", |f| done(fs::read_dir(&f.files))),
    call("overwrite another file", |f| done(OpenOptions::new().write(true).open(&f.secret))),
    call("overwrite the input", |f| done(OpenOptions::new().write(true).open(&f.input))),
    call("append to the input", |f| done(OpenOptions::new().append(true).open(&f.input))),
    call("empty the input by opening it", |f| {
        // Without the sandbox, a file that is not there.
        let flags = libc::O_RDONLY | libc::O_TRUNC;
        let path = c(if f.held.metadata().is_ok_and(|meta| meta.len() > 0) { &f.secret } else { &f.input });
        let fd = raw(libc::SYS_openat, [AT_FDCWD, path.as_ptr() as usize, flags as usize, 0, 0, 0]);
        let _ = fs::write(&f.secret, "files/secret");
        fd
    }),
    call("empty a file by name", |f| with_path(libc::SYS_truncate, &f.secret, [12, 0, 0])),
    call("create a file", |f| {
        let path = f.files.join("new");
        done(File::create_new(&path)).inspect(|()| drop(fs::remove_file(&path)))
    }),
    call("create a file without a name", |f| {
        done(OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&f.files))
    }),
    call("create a directory", |f| {
        let path = f.files.join("new");
        done(fs::create_dir(&path)).inspect(|()| drop(fs::remove_dir(&path)))
    }),
    call("create a symbolic link", |f| {
        let path = f.files.join("new");
        done(std::os::unix::fs::symlink("secret", &path)).inspect(|()| drop(fs::remove_file(&path)))
    }),
    call("create a hard link", |f| {
        let path = f.files.join("new");
        done(fs::hard_link(&f.secret, &path)).inspect(|()| drop(fs::remove_file(&path)))
    }),
    call("create a FIFO", |f| {
        let path = f.files.join("new");
        let made = c(&path);
        let mode = (libc::S_IFIFO | 0o600) as usize;
        raw(libc::SYS_mknodat, [AT_FDCWD, made.as_ptr() as usize, mode, 0, 0, 0])
            .inspect(|()| drop(fs::remove_file(&path)))
    }),
    call("remove a file", |f| {
        done(fs::remove_file(&f.secret)).inspect(|()| drop(fs::write(&f.secret, "files/secret")))
    }),
    call("rename a file", |f| {
        let path = f.files.join("new");
        done(fs::rename(&f.secret, &path)).inspect(|()| drop(fs::rename(&path, &f.secret)))
    }),
    call("let all write to a file", |f| {
        done(fs::set_permissions(&f.secret, fs::Permissions::from_mode(0o666)))
    }),
    call("set the setuid bit", |f| done(fs::set_permissions(&f.secret, fs::Permissions::from_mode(0o4755)))),
    call("let all write to the open input", |f| {
        done(f.held.set_permissions(fs::Permissions::from_mode(0o666)))
    }),
    call("change an owner", |f| done(std::os::unix::fs::chown(&f.secret, Some(1), None))),
    call("change the owner of the open input", |f| done(std::os::unix::fs::fchown(&f.held, Some(1), None))),
    call("set an extended attribute", |f| {
        let (path, name) = (c(&f.secret), c"user.pagehaul");
        let value = b"1";
        raw(
            libc::SYS_setxattr,
            [path.as_ptr() as usize, name.as_ptr() as usize, value.as_ptr() as usize, 1, 0, 0],
        )
    }),
    call("change times of a file", |f| {
        let path = c(&f.secret);
        raw(libc::SYS_utimensat, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0])
    }),
    call("use a file that was inherited", |_| raw(libc::SYS_lseek, [INHERITED as usize, 0, 0, 0, 0, 0])),
    file("read the environment of another process", |f| read_of_victim(f, "environ")),
    file("read the memory map of another process", |f| read_of_victim(f, "maps")),
    file("read the command line of another process", |f| read_of_victim(f, "cmdline")),
    file("read the memory of another process", |f| read_of_victim(f, "mem")),
    file("read its own environment", |_| read("/proc/self/environ")),
    call("write to its own memory as a file", |_| {
        done(OpenOptions::new().write(true).open("/proc/self/mem"))
    }),
    call("copy memory of another process", |f| {
        raw(libc::SYS_process_vm_readv, [f.victim as usize, 0, 0, 0, 0, 0])
    }),
    call("write memory of another process", |f| {
        raw(libc::SYS_process_vm_writev, [f.victim as usize, 0, 0, 0, 0, 0])
    }),
    call("trace another process", |f| {
        raw(libc::SYS_ptrace, [libc::PTRACE_SEIZE as usize, f.victim as usize, 0, 0, 0, 0])
    }),
    call("signal another process", |f| raw(libc::SYS_kill, [f.victim as usize, 0, 0, 0, 0, 0])),
    call("signal a thread of another process", |f| {
        raw(libc::SYS_tgkill, [f.victim as usize, f.victim as usize, 0, 0, 0, 0])
    }),
    call("signal by a thread's number", |f| raw(libc::SYS_tkill, [f.victim as usize, 0, 0, 0, 0, 0])),
    call("have another process signalled", |f| {
        raw(
            libc::SYS_fcntl,
            [f.held.as_raw_fd() as usize, libc::F_SETOWN as usize, f.victim as usize, 0, 0, 0],
        )
    }),
    call("open another process", |f| raw(libc::SYS_pidfd_open, [f.victim as usize, 0, 0, 0, 0, 0])),
    call("limit another process", |f| {
        let limit = [1_u64 << 40; 2];
        let resource = libc::RLIMIT_FSIZE as usize;
        raw(libc::SYS_prlimit64, [f.victim as usize, resource, limit.as_ptr() as usize, 0, 0, 0])
    }),
    call("raise its own limits", |_| {
        let limit = [libc::RLIM_INFINITY; 2];
        raw(libc::SYS_prlimit64, [0, libc::RLIMIT_CORE as usize, limit.as_ptr() as usize, 0, 0, 0])
    }),
    call("change another's priority", |f| raw(libc::SYS_setpriority, [0, f.victim as usize, 0, 0, 0, 0])),
    call("move another to a CPU", |f| {
        let all = [u64::MAX; 16];
        raw(libc::SYS_sched_setaffinity, [f.victim as usize, 128, all.as_ptr() as usize, 0, 0, 0])
    }),
    call("start a process", |_| {
        // SAFETY: the child ends at once, without handlers of its parent.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
            // SAFETY: ends the process.
            0 => unsafe { libc::_exit(0) },
            child => {
                // SAFETY: the status is not asked for.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                Ok(())
            }
        }
    }),
    call("start a process by clone3", |_| raw(libc::SYS_clone3, [0; 6])),
    call("run a program", |_| with_path(libc::SYS_execve, Path::new(NOWHERE), [0, 0, 0])),
    call("run a program by descriptor", |_| {
        let path = c(Path::new(NOWHERE));
        raw(libc::SYS_execveat, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0])
    }),
    call("make a socket of the Internet", |_| raw(libc::SYS_socket, [libc::AF_INET as usize, 1, 0, 0, 0, 0])),
    call("make a local socket", |_| raw(libc::SYS_socket, [libc::AF_UNIX as usize, 1, 0, 0, 0, 0])),
    call("talk to the kernel by netlink", |_| {
        raw(libc::SYS_socket, [libc::AF_NETLINK as usize, 3, 0, 0, 0, 0])
    }),
    call("look for shared memory", |_| raw(libc::SYS_shmget, [12345, 0, 0, 0, 0, 0])),
    call("look for a message queue", |_| raw(libc::SYS_msgget, [12345, 0, 0, 0, 0, 0])),
    call("set the host's name", |_| raw(libc::SYS_sethostname, [0, usize::MAX, 0, 0, 0, 0])),
    call("start process accounting", |_| with_path(libc::SYS_acct, Path::new(NOWHERE), [0; 3])),
    call("read the kernel's log", |_| raw(libc::SYS_syslog, [10, 0, 0, 0, 0, 0])),
    call("set the clock", |_| raw(libc::SYS_clock_settime, [99, 0, 0, 0, 0, 0])),
    call("adjust the clock", |_| raw(libc::SYS_adjtimex, [0; 6])),
    call("reboot", |_| raw(libc::SYS_reboot, [0; 6])),
    call("swap", |_| with_path(libc::SYS_swapon, Path::new(NOWHERE), [0; 3])),
    call("load a module", |_| raw(libc::SYS_finit_module, [usize::MAX, 0, 0, 0, 0, 0])),
    call("load a kernel", |_| raw(libc::SYS_kexec_load, [0, 0, 0, usize::MAX, 0, 0])),
    call("load a program into the kernel", |_| raw(libc::SYS_bpf, [usize::MAX >> 33, 0, 0, 0, 0, 0])),
    call("count events", |_| raw(libc::SYS_perf_event_open, [0; 6])),
    call("handle faults in user space", |_| raw(libc::SYS_userfaultfd, [usize::MAX >> 33, 0, 0, 0, 0, 0])),
    call("submit work by io_uring", |_| raw(libc::SYS_io_uring_setup, [0; 6])),
    call("use a key of the kernel", |_| raw(libc::SYS_keyctl, [usize::MAX >> 33, 0, 0, 0, 0, 0])),
    call("mount", |_| raw(libc::SYS_mount, [0; 6])),
    call("unmount", |_| with_path(libc::SYS_umount2, Path::new(NOWHERE), [0; 3])),
    call("change the root directory", |_| with_path(libc::SYS_chroot, Path::new(NOWHERE), [0; 3])),
    call("open by handle", |_| raw(libc::SYS_open_by_handle_at, [0; 6])),
    call("leave a namespace", |_| raw(libc::SYS_unshare, [libc::CLONE_FS as usize, 0, 0, 0, 0, 0])),
    call("enter a namespace", |_| raw(libc::SYS_setns, [usize::MAX, usize::MAX, 0, 0, 0, 0])),
    call("watch files", |_| raw(libc::SYS_inotify_init1, [0; 6])),
    call("become a user", |_| {
        raw(libc::SYS_setuid, [rustix::process::geteuid().as_raw() as usize, 0, 0, 0, 0, 0])
    }),
    call("gain capabilities", |_| {
        let header = [0x2008_0522_u32, 0];
        let none = [0_u32; 6];
        // Without the sandbox, the call is made in a thread, since it drops what others need.
        let set =
            move || raw(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0, 0]);
        std::thread::spawn(set).join().unwrap()
    }),
    call("allow core dumps", |_| raw(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 1, 0, 0, 0, 0])),
    call("be another system", |_| raw(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0])),
    call("run code that it makes", |_| {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as usize;
        raw(libc::SYS_mmap, [0, 4096, protection, flags, usize::MAX, 0])
    }),
    call("make memory executable", |_| {
        raw(libc::SYS_mprotect, [0, 0, (libc::PROT_READ | libc::PROT_EXEC) as usize, 0, 0, 0])
    }),
    call("type into the terminal", |_| raw(libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0, 0, 0])),
    #[cfg(target_arch = "x86_64")]
    call("use the numbers of x32", |_| raw(0x4000_0000 | libc::SYS_getpid, [0; 6])),
    #[cfg(target_arch = "x86_64")]
    call("use ports of the machine", |_| raw(libc::SYS_iopl, [0; 6])),
];
