use libdeflater::DecompressionError;
use zstd_safe::DCtx;

use crate::unlzo::{self, Fault};
use crate::{Codec, CodecError};

/// Decompresses pages of any codec. Belongs to one thread; a codec's context is made when it is first met.
#[derive(Default)]
pub struct Decompressor {
    zlib: Option<libdeflater::Decompressor>,
    snappy: snap::raw::Decoder,
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    /// Makes one without contexts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses `data`, which must make exactly `page.len()` bytes. On error `page` is garbage.
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
            Codec::Lzo => lzo(data, page)?,
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
            DecompressionError::BadData => corrupt(Codec::Zlib, data, "damaged, cut off or not zlib"),
            DecompressionError::InsufficientSpace => {
                CodecError::TooLong { codec: Codec::Zlib, expected: page.len() }
            }
        })
    }

    fn snappy(&mut self, data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
        let codec = Codec::Snappy;
        // The stream begins with its length: hold it against the page before the decoder does, which would not say
        // that the page is too short.
        let length =
            snap::raw::decompress_len(data).map_err(|_| corrupt(codec, data, "no length at its start"))?;
        if length > page.len() {
            return Err(CodecError::TooLong { codec, expected: page.len() });
        }
        self.snappy.decompress(data, page).map_err(|_| corrupt(codec, data, "damaged or cut off"))
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

/// `(size_t)-ZSTD_error_dstSize_tooSmall` of `zstd_errors.h`, where 70 is a stable number.
const DESTINATION_TOO_SMALL: usize = 70_usize.wrapping_neg();

fn lzo(data: &[u8], page: &mut [u8]) -> Result<usize, CodecError> {
    let codec = Codec::Lzo;
    unlzo::decode(data, page).map_err(|fault| match fault {
        Fault::TooLong => CodecError::TooLong { codec, expected: page.len() },
        Fault::BeforeStart => corrupt(codec, data, "it copies from before its start"),
        Fault::Cut => corrupt(codec, data, "cut off"),
        Fault::NoEnd => corrupt(codec, data, "its end is not at its last byte"),
    })
}

fn corrupt(codec: Codec, data: &[u8], reason: &'static str) -> CodecError {
    CodecError::Corrupt { codec, size: data.len(), reason }
}
