//! LZO1X, bitstream version 0, as the kernel's `Documentation/staging/lzo.rst` describes it: the version that
//! readers of dumps decode.
//!
//! [`search`] finds matches, [`instructions`] encodes them, [`decode`] reads streams of any encoder.

mod decode;
mod instructions;
mod output;
mod search;

pub(crate) use decode::{DecodeError, decode};
pub(crate) use output::MAX_INPUT;
pub(crate) use search::Encoder;
