//! One page in, one page out: zlib, LZO1X, snappy, zstd.
