//! What headers of images may claim.

/// Physical addresses have 52 bits at most, on x86_64 as on arm64.
pub(super) const END_OF_MEMORY: u64 = 1 << 52;
/// Memory that a range may claim beyond the end of the file, as a file that was cut has it. Without a bound, a header would make every
/// command scan petabytes.
pub(super) const MAX_MISSING: u64 = 64 << 30;
