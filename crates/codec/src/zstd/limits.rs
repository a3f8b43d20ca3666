//! Sizes that the encoder for pages relies on.

/// Length of every page.
pub(super) const PAGE: usize = 4096;
/// The shortest match that the format can express.
pub(super) const MIN_MATCH: usize = 3;

/// More sequences than any page has, as each match covers at least [`MIN_MATCH`] bytes.
pub(super) const MAX_SEQUENCES: usize = 2048;
