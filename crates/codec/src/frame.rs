//! Zstandard frames that stand for themselves: with their content's size and checksum, for files made of many.

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::{Codec, CodecError, Method};

/// Makes frames. Belongs to one thread.
pub struct FrameCompressor {
    context: CCtx<'static>,
}

impl FrameCompressor {
    /// Sets up zstd at a level.
    pub fn new(level: i32) -> Result<Self, CodecError> {
        let mut context =
            CCtx::try_create().ok_or(CodecError::Context { codec: Codec::Zstd, reason: "out of memory" })?;
        let parameters = [
            CParameter::CompressionLevel(level),
            CParameter::ChecksumFlag(true),
            CParameter::ContentSizeFlag(true),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).map_err(|code| CodecError::Context {
                codec: Codec::Zstd,
                reason: zstd_safe::get_error_name(code),
            })?;
        }
        Ok(Self { context })
    }

    /// Replaces `out` by one frame that holds `content`.
    pub fn compress(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.clear();
        out.reserve(zstd_safe::compress_bound(content.len()));
        self.context.compress2(out, content).map(drop).map_err(|code| CodecError::Context {
            codec: Codec::Zstd,
            reason: zstd_safe::get_error_name(code),
        })
    }
}

/// Reads frames. Belongs to one thread.
pub struct FrameDecompressor {
    context: DCtx<'static>,
}

impl FrameDecompressor {
    /// Sets up zstd.
    pub fn new() -> Result<Self, CodecError> {
        let context =
            DCtx::try_create().ok_or(CodecError::Context { codec: Codec::Zstd, reason: "out of memory" })?;
        Ok(Self { context })
    }

    /// Replaces `out` by the content of `frame`, of which at most `limit` bytes are expected; the checksum is looked
    /// at where the frame has one.
    pub fn decompress(&mut self, frame: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CodecError> {
        out.clear();
        out.reserve(limit);
        self.context.decompress(out, frame).map_err(|code| CodecError::Corrupt {
            codec: Codec::Zstd,
            size: frame.len(),
            reason: zstd_safe::get_error_name(code),
        })?;
        // There may be more room than was asked for.
        if out.len() > limit {
            Err(CodecError::TooLong { codec: Codec::Zstd, expected: limit })
        } else {
            Ok(())
        }
    }
}

/// zstd's level of a method; none for the others.
pub fn zstd_level(method: Method) -> Option<i32> {
    (method.codec() == Codec::Zstd).then(|| method.level())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_content_and_notice_damage() {
        let content: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (mut frame, mut back) = (Vec::new(), Vec::new());
        FrameCompressor::new(-1).unwrap().compress(&content, &mut frame).unwrap();
        assert!(frame.len() < content.len() / 2);
        let mut decompressor = FrameDecompressor::new().unwrap();
        decompressor.decompress(&frame, &mut back, content.len()).unwrap();
        assert!(back == content);
        assert!(decompressor.decompress(&frame, &mut back, content.len() - 1).is_err());
        for at in (0..frame.len()).step_by(997) {
            frame[at] ^= 4;
            let noticed =
                decompressor.decompress(&frame, &mut back, content.len()).is_err() || back != content;
            assert!(noticed || at == 4, "byte {at}");
            frame[at] ^= 4;
        }
    }
}
