//! Compresses pages for dumps.

use std::io::Write;

use crate::content::STAMP;

/// Compression of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Uncompressed.
    Raw,
    Zlib,
    /// LZO1X, for pages that repeat their first 64 bytes ([`Content::Stamp`](crate::Content::Stamp), zeros).
    /// Other pages are stored uncompressed, as if they did not shrink.
    Lzo,
    Snappy,
    Zstd,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Codec; 5] = [Codec::Raw, Codec::Zlib, Codec::Lzo, Codec::Snappy, Codec::Zstd];

    /// Returns the bit in a descriptor's flags and in the header's status.
    pub fn flag(self) -> u32 {
        match self {
            Codec::Raw => 0,
            Codec::Zlib => 0x1,
            Codec::Lzo => 0x2,
            Codec::Snappy => 0x4,
            Codec::Zstd => 0x20,
        }
    }

    /// Returns the compressed page, or `None` if it does not shrink.
    pub fn compress(self, page: &[u8]) -> Option<Vec<u8>> {
        const FINE: &str = "memory takes any write";
        let bytes = match self {
            Codec::Raw => return None,
            Codec::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(page).expect(FINE);
                encoder.finish().expect(FINE)
            }
            Codec::Lzo => lzo_of_repetition(page)?,
            Codec::Snappy => snap::raw::Encoder::new().compress_vec(page).expect(FINE),
            Codec::Zstd => {
                let mut out = vec![0; zstd_safe::compress_bound(page.len())];
                let count = zstd_safe::compress(out.as_mut_slice(), page, 1)
                    .expect("the buffer has the size zstd asks for");
                out.truncate(count);
                out
            }
        };
        (bytes.len() < page.len()).then_some(bytes)
    }
}

/// Encodes 64 literals, one copy that repeats them to the end of the page, and the end of stream.
fn lzo_of_repetition(page: &[u8]) -> Option<Vec<u8>> {
    if !page.chunks_exact(STAMP).all(|chunk| chunk == &page[..STAMP]) {
        return None;
    }
    let mut out = vec![17 + STAMP as u8];
    out.extend(&page[..STAMP]);
    // 001LLLLL: a match of 2 + 31 + 255 for each zero byte + the byte after, 14 bits of distance less one.
    let mut rest = page.len() - STAMP - 2 - 31;
    out.push(0x20);
    while rest > 255 {
        out.push(0);
        rest -= 255;
    }
    out.push(rest as u8);
    out.extend(((STAMP as u16 - 1) << 2).to_le_bytes());
    out.extend([0x11, 0, 0]);
    Some(out)
}
