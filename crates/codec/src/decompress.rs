use libdeflater::DecompressionError;
use zstd_safe::DCtx;

use crate::error::CodecError;
use crate::lzo::{self, DecodeError};
use crate::method::Codec;

/// Decompresses pages of any codec. Belongs to one thread; creates the context of a codec when it is first
/// needed.
#[derive(Default)]
pub struct Decompressor {
    zlib: Option<libdeflater::Decompressor>,
    snappy: snap::raw::Decoder,
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    /// Returns a decompressor without contexts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses `data`, which must be exactly `page.len()` bytes long when decompressed. On error the
    /// contents of `page` are unspecified.
    pub fn decompress(&mut self, codec: Codec, data: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        let expected = page.len();
        let actual = match codec {
            Codec::None => {
                if let Some(head) = page.get_mut(..data.len()) {
                    head.copy_from_slice(data);
                }
                data.len()
            }
            Codec::Zlib => self.inflate(data, page)?,
            Codec::Lzo => decompress_lzo(data, page)?,
            Codec::Snappy => self.snappy(data, page)?,
            Codec::Zstd => self.zstd(data, page)?,
        };
        match actual {
            _ if actual < expected => Err(CodecError::TooShort { codec, expected, actual }),
            _ if actual > expected => Err(CodecError::TooLong { codec, expected }),
            _ => Ok(()),
        }
    }

    fn inflate(&mut self, data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
        let context = self.zlib.get_or_insert_default();
        context.zlib_decompress(data, page).map_err(|error| match error {
            DecompressionError::BadData => corrupt(Codec::Zlib, data, "damaged, truncated or not zlib"),
            DecompressionError::InsufficientSpace => {
                CodecError::TooLong { codec: Codec::Zlib, expected: page.len() }
            }
        })
    }

    fn snappy(&mut self, data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
        let codec = Codec::Snappy;
        // The stream begins with its length. Compare it with the page before the decoder does, whose error
        // would not say that the stream is too long.
        let length = snap::raw::decompress_len(data)
            .map_err(|_| corrupt(codec, data, "it does not begin with a length"))?;
        if length > page.len() {
            return Err(CodecError::TooLong { codec, expected: page.len() });
        }
        self.snappy.decompress(data, page).map_err(|_| corrupt(codec, data, "damaged or truncated"))
    }

    fn zstd(&mut self, data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
        let codec = Codec::Zstd;
        if self.zstd.is_none() {
            self.zstd = DCtx::try_create();
        }
        let context = self.zstd.as_mut().ok_or(CodecError::Context { codec, reason: "out of memory" })?;
        let expected = page.len();
        context.decompress(page, data).map_err(|code| {
            if code == DESTINATION_TOO_SMALL {
                return CodecError::TooLong { codec, expected };
            }
            corrupt(codec, data, zstd_safe::get_error_name(code))
        })
    }
}

/// `(size_t)-ZSTD_error_dstSize_tooSmall` of `zstd_errors.h`, where 70 is a stable value.
const DESTINATION_TOO_SMALL: usize = 70_usize.wrapping_neg();

fn decompress_lzo(data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
    let codec = Codec::Lzo;
    lzo::decode(data, page).map_err(|error| match error {
        DecodeError::OutputOverrun => CodecError::TooLong { codec, expected: page.len() },
        DecodeError::LookbehindOverrun => corrupt(codec, data, "a copy starts before the page"),
        DecodeError::InputOverrun => corrupt(codec, data, "truncated"),
        DecodeError::EndNotFound => corrupt(codec, data, "its end of stream is not at its last byte"),
    })
}

fn corrupt(codec: Codec, data: &[u8], reason: &'static str) -> CodecError {
    CodecError::Corrupt { codec, size: data.len(), reason }
}
