//! The three alphabets of DEFLATE (RFC 1951, 3.2.5 and 3.2.7), and their places in one table.

/// The end-of-block symbol.
pub(super) const END_OF_BLOCK: usize = 256;
/// The longest match.
pub(super) const MAX_MATCH: usize = 258;
/// Number of literal/length symbols.
pub(super) const LITERAL_LENGTH_SYMBOLS: usize = 286;
/// Number of distance symbols for distances up to 4096.
pub(super) const DISTANCE_SYMBOLS: usize = 24;
/// Index of the first distance symbol: the three alphabets share one table.
pub(super) const FIRST_DISTANCE: usize = 288;
/// Index of the first symbol of the code length alphabet.
pub(super) const FIRST_CODE_LENGTH: usize = 320;
/// Size of a table of all symbols: masking its indices leaves no bounds to check.
pub(super) const MAX_SYMBOLS: usize = 512;
