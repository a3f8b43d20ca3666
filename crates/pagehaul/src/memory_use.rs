//! What this process itself takes of the memory it was given.

/// Bytes of anonymous memory in use now (RssAnon of /proc/self/status; mapped source windows are not in it).
pub(crate) fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
