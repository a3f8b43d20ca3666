//! What CRIU does not restore: three sealed mappings, two locked on fault, one wiped on fork and one droppable, and attributes of the
//! calling thread and its process. What the kernel does not have is left out.

use std::fs;
use std::mem::zeroed;
use std::ptr::null_mut;

/// `MAP_DROPPABLE` (Linux 6.11), and the system call mseal (Linux 6.10).
const DROPPABLE: i32 = 8;
const MSEAL: i64 = 462;
const IDLE: i32 = 3 << 13;
const PAGE: usize = 4096;

pub fn take_all() {
    let private = libc::MAP_PRIVATE;
    // SAFETY: the mappings are new and used for nothing else; the rest are numbers, and a set that is alive for the call.
    unsafe {
        for _ in 0..3 {
            let page = map(private);
            libc::syscall(MSEAL, page, PAGE, 0);
        }
        for _ in 0..2 {
            assert_eq!(libc::mlock2(map(private), PAGE, libc::MLOCK_ONFAULT as _), 0);
        }
        assert_eq!(libc::madvise(map(private), PAGE, libc::MADV_WIPEONFORK), 0);
        map(DROPPABLE);
        let mut cpus: libc::cpu_set_t = zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus), 0);
        let last = (0..libc::CPU_SETSIZE as usize).rfind(|cpu| libc::CPU_ISSET(*cpu, &cpus)).unwrap();
        libc::CPU_ZERO(&mut cpus);
        libc::CPU_SET(last, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &cpus), 0);
        assert_eq!(libc::prctl(libc::PR_SET_TIMERSLACK, 123_456, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_ioprio_set, 1, 0, IDLE), 0);
        assert_ne!(libc::personality(libc::ADDR_NO_RANDOMIZE as _), -1);
    }
    fs::write("/proc/self/coredump_filter", "0x7f").unwrap();
}

/// A page between two that cannot be used, so that it is a mapping apart.
unsafe fn map(kind: i32) -> *mut libc::c_void {
    let none = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the first is a new mapping, the second replaces its middle.
    unsafe {
        let room = libc::mmap(null_mut(), 3 * PAGE, none.0, none.1, -1, 0);
        assert_ne!(room, libc::MAP_FAILED);
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        libc::mmap(room.byte_add(PAGE), PAGE, access, flags, -1, 0);
        room.byte_add(PAGE)
    }
}
