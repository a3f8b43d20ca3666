//! Exit statuses beyond success (0) and failure (1).

/// The command line is wrong; clap uses the same.
pub(crate) const USAGE: u8 = 2;
/// The output is incomplete, and marked so; or the dump that was read is.
pub(crate) const INCOMPLETE: u8 = 3;
/// `kdump check`: the next crash is likely not dumped.
#[cfg(feature = "kdump-setup")]
pub(crate) const KDUMP_PROBLEM: u8 = 3;
/// `kdump check`: only warnings.
#[cfg(feature = "kdump-setup")]
pub(crate) const KDUMP_WARNING: u8 = 4;
/// `kdump report`: the dump is encrypted, and its key is not there.
#[cfg(feature = "kdump-setup")]
pub(crate) const ENCRYPTED: u8 = 4;
/// `kdump apply`: lines are left to be added by hand.
#[cfg(feature = "kdump-setup")]
pub(crate) const BY_HAND: u8 = 3;
/// The file that was verified is damaged or incomplete.
pub(crate) const DAMAGED: u8 = 3;
