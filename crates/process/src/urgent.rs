//! Threads that others wait for while they are stopped.
//!
//! A checkpoint needs dozens of switches between CRIU and pagehaul while the processes are frozen. On a busy machine each of them waits for
//! the end of another task's slice, about 3 ms. A task of a higher weight waits as long; one that asks for short slices does not (Linux
//! 6.12, commits 857b158dc5e8 and 85e511df3cec; older kernels do not look at the slice).

use std::mem::MaybeUninit;

/// The shortest slice (`sched_setattr`(2), in nanoseconds).
const SLICE: u64 = 100_000;
/// The lowest niceness.
const NICE: i32 = -20;

/// The calling thread, and those that it makes, go first until this is dropped.
#[derive(Debug)]
pub(crate) struct Urgent(Option<libc::sched_attr>);

impl Urgent {
    /// Does nothing if the user has chosen a scheduler of real time, or may not have others wait. Allocates nothing, so that it may be
    /// called between fork and exec.
    pub(crate) fn begin() -> Self {
        let before = get().filter(is_usual);
        Self(before.filter(|before| {
            let usual = libc::sched_attr { sched_policy: libc::SCHED_OTHER.cast_unsigned(), ..*before };
            let short = libc::sched_attr { sched_runtime: SLICE, ..usual };
            set(&libc::sched_attr { sched_nice: NICE, ..short }) || set(&short)
        }))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            set(before);
        }
    }
}

/// Whether a thread is scheduled by weight: processes do not wait for one that is idle otherwise (SCHED_IDLE).
fn is_usual(attributes: &libc::sched_attr) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&attributes.sched_policy.cast_signed())
}

/// How this thread is scheduled.
fn get() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let (this_thread, size, flags) = (0, size_of::<libc::sched_attr>(), 0);
    // SAFETY: the kernel writes at most `size` bytes.
    let failed = unsafe {
        libc::syscall(libc::SYS_sched_getattr, this_thread, attributes.as_mut_ptr(), size as u32, flags)
    };
    // SAFETY: all bits are valid numbers.
    (failed == 0).then(|| unsafe { attributes.assume_init() })
}

/// Changes it. Returns whether the kernel allows that.
fn set(attributes: &libc::sched_attr) -> bool {
    let (this_thread, flags) = (0, 0);
    // SAFETY: the kernel reads as many bytes as the attributes say that they have.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, std::ptr::from_ref(attributes), flags) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how() -> (i32, u64) {
        get().map(|attributes| (attributes.sched_nice, attributes.sched_runtime)).unwrap()
    }

    #[test]
    fn a_thread_and_its_threads_go_first_until_the_end() {
        // A thread of its own: the test's may have been made by another.
        std::thread::spawn(|| {
            let before = how();
            let urgent = Urgent::begin();
            let meanwhile = how();
            assert_eq!(std::thread::spawn(how).join().unwrap(), meanwhile);
            drop(urgent);
            assert_eq!(how().0, before.0);
            if rustix::process::geteuid().is_root() && meanwhile != before {
                assert_eq!(meanwhile.0, NICE);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_idle_thread_is_one_again_afterwards() {
        std::thread::spawn(|| {
            let policy = || get().unwrap().sched_policy.cast_signed();
            let idle = libc::sched_attr { sched_policy: libc::SCHED_IDLE.cast_unsigned(), ..get().unwrap() };
            if !set(&idle) {
                return;
            }
            let urgent = Urgent::begin();
            let meanwhile = policy();
            assert_eq!(meanwhile == libc::SCHED_OTHER, urgent.0.is_some());
            drop(urgent);
            assert_eq!(policy(), libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
    }
}
