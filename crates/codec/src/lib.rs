//! One page in, one page out: zlib, LZO1X, snappy, zstd.
//!
//! A [`Compressor`] and a [`Decompressor`] belong to one thread and are used for any number of pages: what they
//! allocate is allocated once. A page's compressed bytes depend on the page and the [`Method`] alone, never on what
//! was compressed before, so a dump comes out the same however its pages are spread over threads.

mod bits;
mod compress;
mod decompress;
mod deflate;
mod error;
mod frame;
mod lengths;
mod lzo;
mod method;
mod output;
mod search;
mod unlzo;
mod zero;
mod zstd;

pub use compress::Compressor;
pub use decompress::Decompressor;
pub use error::{CodecError, MethodError};
pub use frame::{FrameCompressor, FrameDecompressor, zstd_level};
pub use method::{Codec, Method};
pub use zero::is_zero;
