//! Memory of known owners and sizes, for `pagehaul pages --owners`: the scenario `owners` takes some of each and crashes, the
//! scenarios `oom-*` take one kind until the machine panics.

use crate::system::{check, mount, set};
use crate::tasks::set_name;
use crate::{Result, notify_host, unmarked};
use lab_guest::plan::message;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::FromRawFd;

const MIB: usize = 1 << 20;
const TMPFS: &str = "/scene";
/// Sizes in MiB. `tools/lab/oracle/owners.py` expects them.
const FILE: usize = 20;
const DELETED: usize = 12;
/// memfd can have huge pages.
const MEMFD: usize = 10;
const SEGMENT: usize = 7;
const SHARED: usize = 5;
const MAP: usize = 6;
const PRIVATE: usize = 16;
/// Limit of a cgroup.
const CGROUP: usize = 48;
/// Pipes, each with 16 pages.
const PIPES: usize = 24;
/// Children of 32 page tables each.
const CHILDREN: usize = 24;
const REGIONS: usize = 32;
/// Page tables of a child that exhausts memory: more than its stack and its other memory take.
const MANY_REGIONS: usize = 256;
const SEGMENT_KEY: i32 = 0x5ce0e;

/// Takes memory of every kind, prints /proc/meminfo, and crashes.
pub fn crash() -> Result<()> {
    mount("scene", TMPFS, "tmpfs", "size=90%")?;
    set_name("scene-holder");
    let mut held: Vec<File> = Vec::new();
    held.push(file("kept", FILE)?);
    let deleted = file("deleted", DELETED)?;
    fs::remove_file(format!("{TMPFS}/deleted")).map_err(|e| format!("{TMPFS}/deleted: {e}"))?;
    held.push(deleted);
    held.push(memfd()?);
    segment()?;
    map(SHARED * MIB, libc::MAP_SHARED)?;
    map(PRIVATE * MIB, libc::MAP_PRIVATE)?;
    held.extend(pipes()?);
    held.push(array_map(MAP * MIB)?);
    for _ in 0..CHILDREN {
        child(REGIONS)?;
    }
    let _unmarked = unmarked::take()?;
    // Memory that is freed until the next second must not be counted.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    for line in meminfo.lines() {
        notify_host(message::STEP, &format!("meminfo {line}"));
    }
    set("/proc/sysrq-trigger", "c")
}

/// Fills a file of tmpfs until the machine runs out of memory.
pub fn exhaust_with_tmpfs() -> Result<()> {
    mount("scene", TMPFS, "tmpfs", "size=100%")?;
    set_name("scene-filler");
    file("log", usize::MAX / MIB).map(drop)
}

/// Fills deleted files of a tmpfs, which stay because a process has them open, until the machine runs out of memory.
pub fn exhaust_with_deleted_files() -> Result<()> {
    mount("scene", TMPFS, "tmpfs", "size=100%")?;
    set_name("scene-logger");
    let mut held = Vec::new();
    for number in 0_u64.. {
        let name = format!("log.{number}");
        held.push(file(&name, DELETED)?);
        fs::remove_file(format!("{TMPFS}/{name}")).map_err(|e| format!("{TMPFS}/{name}: {e}"))?;
    }
    Ok(())
}

/// Takes memory in a cgroup until that reaches its limit, while the machine has memory left.
pub fn exhaust_cgroup() -> Result<()> {
    const CGROUPS: &str = "/cgroup";
    let group = format!("{CGROUPS}/scene");
    mount("none", CGROUPS, "cgroup2", "")?;
    set(&format!("{CGROUPS}/cgroup.subtree_control"), "+memory")?;
    fs::create_dir(&group).map_err(|e| format!("{group}: {e}"))?;
    set(&format!("{group}/memory.max"), &(CGROUP * MIB).to_string())?;
    // 1 is for the machine's memory only.
    set("/proc/sys/vm/panic_on_oom", "2")?;
    set_name("scene-tenant");
    set(&format!("{group}/cgroup.procs"), &std::process::id().to_string())?;
    loop {
        map(MIB, libc::MAP_PRIVATE)?;
    }
}

/// Sends messages that nobody receives until the machine runs out of memory: objects of 4 KiB of one slab cache.
pub fn exhaust_with_messages() -> Result<()> {
    // Larger messages have several objects; `struct msg_msg` takes 48 bytes.
    const BYTES: usize = 4000;
    set("/proc/sys/kernel/msgmnb", "1073741824")?;
    set("/proc/sys/kernel/msgmax", "8192")?;
    set_name("scene-sender");
    // SAFETY: no memory is passed.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) };
    let queue = check(queue.into(), "msgget")? as i32;
    // A type, which must not be 0, and the text.
    let mut message = vec![0x5c_u8; size_of::<libc::c_long>() + BYTES];
    message[0] = 1;
    loop {
        // SAFETY: the message has a type and `BYTES` bytes.
        let sent = unsafe { libc::msgsnd(queue, message.as_ptr().cast(), BYTES, 0) };
        check(sent.into(), "msgsnd")?;
    }
}

/// Makes BPF maps until there is no memory for another, which the kernel refuses without calling the OOM killer. Then takes the rest.
pub fn exhaust_with_maps() -> Result<()> {
    let mut held = Vec::new();
    while let Ok(map) = array_map(4 * MIB) {
        held.push(map);
    }
    loop {
        map(MIB, libc::MAP_PRIVATE)?;
    }
}

/// Makes children with page tables until the machine runs out of memory.
pub fn exhaust_with_page_tables() -> Result<()> {
    loop {
        child(MANY_REGIONS)?;
    }
}

fn file(name: &str, mib: usize) -> Result<File> {
    let path = format!("{TMPFS}/{name}");
    let mut file = File::create(&path).map_err(|e| format!("{path}: {e}"))?;
    fill(&mut file, mib).map_err(|e| format!("{path}: {e}"))?;
    Ok(file)
}

fn fill(file: &mut File, mib: usize) -> std::io::Result<()> {
    let chunk = vec![0x5c; MIB];
    (0..mib).try_for_each(|_| file.write_all(&chunk))
}

fn memfd() -> Result<File> {
    let name = CString::new("scene-memfd").map_err(|e| e.to_string())?;
    // SAFETY: a NUL-terminated string that outlives the call.
    let descriptor = check(unsafe { libc::memfd_create(name.as_ptr(), 0) }.into(), "memfd_create")?;
    // SAFETY: the descriptor is new and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor as i32) };
    fill(&mut file, MEMFD).map_err(|e| format!("memfd: {e}"))?;
    Ok(file)
}

fn segment() -> Result<()> {
    // SAFETY: no memory is passed.
    let id = unsafe { libc::shmget(SEGMENT_KEY, SEGMENT * MIB, libc::IPC_CREAT | 0o600) };
    let id = check(id.into(), "shmget")? as i32;
    // SAFETY: the kernel chooses where it maps the segment.
    let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    check(at as i64, "shmat")?;
    // SAFETY: the segment has this size, and only this function has its address.
    unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0x5c, SEGMENT * MIB) };
    Ok(())
}

/// Maps anonymous memory and writes to all of it.
fn map(bytes: usize, kind: i32) -> Result<()> {
    let at = reserve(bytes, kind)?;
    // SAFETY: the mapping has this size, and only this function has its address.
    unsafe { std::ptr::write_bytes(at, 0x5c, bytes) };
    Ok(())
}

fn reserve(bytes: usize, kind: i32) -> Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place of a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    check(at as i64, "mmap")?;
    Ok(at.cast())
}

fn page_size() -> usize {
    // SAFETY: no memory is passed.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn pipes() -> Result<Vec<File>> {
    let mut held = Vec::new();
    for _ in 0..PIPES {
        let mut ends = [0; 2];
        // SAFETY: an array of two descriptors.
        check(unsafe { libc::pipe(ends.as_mut_ptr()) }.into(), "pipe")?;
        // SAFETY: both descriptors are new and nothing else owns them.
        let [read, mut write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        write.write_all(&vec![0x5c; 16 * page_size()]).map_err(|e| format!("pipe: {e}"))?;
        held.extend([read, write]);
    }
    Ok(held)
}

/// A BPF array of one value: memory of vmalloc.
fn array_map(bytes: usize) -> Result<File> {
    const CREATE: i64 = 0;
    const ARRAY: u32 = 2;
    const NAME: &[u8; 12] = b"scene_map\0\0\0";
    // union bpf_attr of BPF_MAP_CREATE: type, bytes of a key, bytes of a value, entries, three others, name.
    let attributes: [u32; 16] = {
        let mut all = [0; 16];
        all[..4].copy_from_slice(&[ARRAY, 4, 4096, (bytes / 4096) as u32]);
        for (word, letters) in all[7..].iter_mut().zip(NAME.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*letters);
        }
        all
    };
    // SAFETY: the kernel reads the attributes, whose size is given.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, CREATE, attributes.as_ptr(), size_of_val(&attributes)) };
    let descriptor = check(descriptor, "bpf")?;
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor as i32) })
}

/// Forks a process that reads from many regions: each takes a page table, and maps the page of zeros.
fn child(regions: usize) -> Result<()> {
    // SAFETY: the child calls only functions that are safe after a fork of one thread: mmap, madvise, prctl, pause.
    match check(unsafe { libc::fork() }.into(), "fork")? {
        0 => {
            set_name("scene-tables");
            // What one page table maps: entries of 8 bytes.
            let region = page_size() / 8 * page_size();
            let bytes = (regions + 1) * region;
            if let Ok(at) = reserve(bytes, libc::MAP_PRIVATE) {
                // Huge pages need no page tables.
                // SAFETY: advice for the mapping that was just made.
                unsafe { libc::madvise(at.cast(), bytes, libc::MADV_NOHUGEPAGE) };
                for number in 0..regions {
                    // SAFETY: inside the mapping.
                    unsafe { at.add(number * region + region / 2).read_volatile() };
                }
            }
            crate::tasks::wait()
        }
        _ => Ok(()),
    }
}
