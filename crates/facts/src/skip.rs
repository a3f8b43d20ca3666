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
}

impl SkipList {
    fn parse(text: &'static str) -> Self {
        let mut list = Self::default();
        let mut ends = false;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let names = if ends { &mut list.end } else { &mut list.skip };
            match (line, line.strip_suffix('*')) {
                ("[skip]", _) => ends = false,
                ("[end]", _) => ends = true,
                (_, Some(start)) => names.starts.push(start),
                (name, None) => names.exact.push(name),
            }
        }
        list.skip.exact.sort_unstable();
        list.end.exact.sort_unstable();
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
    }
}
