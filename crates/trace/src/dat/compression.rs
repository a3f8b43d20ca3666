use std::io::Read;

use crate::zstd;

/// Compression algorithms of trace-cmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Zlib,
    Zstd,
}

impl Codec {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Decompresses `packed` to exactly `raw` bytes.
    pub(super) fn decompress(self, packed: &[u8], raw: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match self {
            Self::None => return Err("data is marked as compressed in a file without compression".into()),
            Self::Zlib => {
                let mut decoder = flate2::read::ZlibDecoder::new(packed).take(raw as u64 + 1);
                decoder.read_to_end(&mut out).map_err(|error| format!("zlib data is damaged: {error}"))?;
            }
            Self::Zstd => {
                let mut context = zstd::decompressor().map_err(|error| error.to_string())?;
                zstd::decompress(&mut context, packed, raw, &mut out)?;
            }
        }
        if out.len() == raw {
            Ok(out)
        } else {
            Err(format!("compressed data decompresses to {} bytes instead of {raw}", out.len()))
        }
    }
}
