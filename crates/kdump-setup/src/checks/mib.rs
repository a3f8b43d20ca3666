//! How sizes are written.

/// A size in MiB, as `crashkernel=` and distributions write it.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}
