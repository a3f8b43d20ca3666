//! Values that processes do not share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use once_cell::race::OnceBox;

/// Forks between the first process that made a value and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A value of the process that made it. A process forked from it makes another: a thread of the parent may have held a lock of the
/// value at that moment, and requests of both on one connection would mix.
pub(crate) struct PerProcess<T> {
    value: T,
    /// [`FORKS`] in its process.
    forks: u64,
    /// Never a lock: a fork could leave it locked in the child.
    of_child: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        count_forks();
        Self { value, forks: FORKS.load(Ordering::Relaxed), of_child: OnceBox::new() }
    }

    /// Returns the value of this process, which `renew` makes from the parent's if there is none yet. It must not lock anything
    /// in the parent's.
    pub(crate) fn get<E>(&self, renew: impl FnOnce(&T) -> Result<T, E>) -> Result<&T, E> {
        let forks = FORKS.load(Ordering::Relaxed);
        let mut owner = self;
        while owner.forks != forks {
            let Some(child) = owner.of_child.get() else {
                let child = |value| Box::new(Self { value, forks, of_child: OnceBox::new() });
                // Two threads may both make one: both get the first.
                let made = owner.of_child.get_or_try_init(|| renew(&owner.value).map(child));
                return made.map(|child| &child.value);
            };
            owner = child;
        }
        Ok(&owner.value)
    }
}

/// Has each later fork counted in the child.
fn count_forks() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);

    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    // Two threads may both register: then a fork counts twice, which does no harm.
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        REGISTERED.store(true, Ordering::Release);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Returns whether `check` holds in a child, which ends if it takes too long.
    pub(crate) fn in_child(check: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing that needs another thread, and ends without exit handlers.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no pointers.
                unsafe {
                    libc::alarm(60);
                    libc::_exit(i32::from(!check()))
                }
            }
            child => {
                assert!(child > 0);
                let mut status = 0;
                // SAFETY: `status` is a valid place for the result.
                unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
            }
        }
    }

    #[test]
    fn each_process_has_its_own_value() {
        let value = PerProcess::new(1);
        let get = || *value.get(|parent| Ok::<_, Infallible>(parent + 1)).unwrap();
        assert_eq!(get(), 1);
        // A grandchild, too, whether or not its parent has made one.
        assert!(in_child(|| get() == 2 && get() == 2 && in_child(|| get() == 3)));
        assert!(in_child(|| in_child(|| get() == 2)));
        assert_eq!(get(), 1);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let value = PerProcess::new(1);
        assert!(in_child(|| {
            value.get(|_| Err("no network")) == Err("no network") && value.get(|_| Ok::<_, &str>(5)) == Ok(&5)
        }));
    }
}
