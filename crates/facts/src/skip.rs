//! Functions that a signature leaves out: `skip.txt`.

use std::sync::LazyLock;

/// Names, and how names start.
#[derive(Debug, Default)]
struct Names {
    exact: Vec<&'static str>,
    starts: Vec<&'static str>,
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.exact.binary_search(&name).is_ok() || self.starts.iter().any(|start| name.starts_with(start))
    }
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct SkipList {
    skip: Names,
    end: Names,
    generic: Names,
}

impl SkipList {
    fn parse(text: &'static str) -> Self {
        let mut list = Self::default();
        let mut names = &mut list.skip;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match (line, line.strip_suffix('*')) {
                ("[skip]", _) => names = &mut list.skip,
                ("[end]", _) => names = &mut list.end,
                ("[generic]", _) => names = &mut list.generic,
                (_, Some(start)) => names.starts.push(start),
                (name, None) => names.exact.push(name),
            }
        }
        for names in [&mut list.skip, &mut list.end, &mut list.generic] {
            names.exact.sort_unstable();
        }
        list
    }

    /// Whether a function is left out.
    pub(crate) fn skips(&self, function: &str) -> bool {
        self.skip.has(function)
    }

    /// Whether a trace ends at a function.
    pub(crate) fn ends(&self, function: &str) -> bool {
        self.end.has(function)
    }

    /// Whether a coarse signature leaves out a function that others keep.
    pub(crate) fn is_generic(&self, function: &str) -> bool {
        self.generic.has(function)
    }
}

/// Returns the list.
pub(crate) fn list() -> &'static SkipList {
    static LIST: LazyLock<SkipList> = LazyLock::new(|| SkipList::parse(include_str!("skip.txt")));
    &LIST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_starts() {
        let list = list();
        assert!(
            list.skips("panic")
                && list.skips("__mutex_lock_slowpath")
                && list.skips("rwsem_down_read_slowpath")
        );
        assert!(!list.skips("panicky_driver_probe") && !list.skips("vfs_write"));
        assert!(list.ends("entry_SYSCALL_64_after_hwframe") && list.ends("kthread"));
        assert!(!list.ends("kthread_should_stop"));
        assert!(list.is_generic("lock_acquire") && list.is_generic("list_add_rcu"));
        assert!(!list.is_generic("panic") && !list.is_generic("kthread") && !list.is_generic("tcp_ack"));
    }
}
