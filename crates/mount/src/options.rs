/// How to mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that serve requests.
    pub threads: usize,
    /// Whether other users may read it.
    pub allow_other: bool,
    /// What `mount` shows as the source.
    pub name: String,
    /// Time of the files: seconds since 1970.
    pub time: Option<u64>,
}
