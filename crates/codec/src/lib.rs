//! Compresses and decompresses single pages: zlib, LZO1X, snappy, zstd.
//!
//! A [`Compressor`] and a [`Decompressor`] belong to one thread, which uses them for any number of pages:
//! they allocate once. A page's compressed bytes depend on the page and the [`Method`] alone, never on pages
//! compressed before, so a dump is the same however its pages are spread over threads.
//!
//! A module per codec holds its built-in encoder, tuned for pages of 4 KiB: `lzo` (also a decoder),
//! `deflate`, `zstd`. They share `common`. Libraries do everything else.

#![deny(missing_docs)]

mod common;
mod compress;
mod decompress;
mod deflate;
mod error;
mod frame;
mod inflate;
mod lzo;
mod method;
mod zero;
mod zstd;

pub use compress::Compressor;
pub use decompress::Decompressor;
pub use error::CodecError;
pub use frame::{FrameCompressor, FrameDecompressor, zstd_level};
pub use inflate::{Ending, Start, inflate, inflate_start};
pub use method::{Codec, Method, MethodError};
pub use zero::is_zero;
