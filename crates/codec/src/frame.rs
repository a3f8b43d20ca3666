//! Self-contained zstd frames of any content, with content size and checksum: for files made of many frames.

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::error::CodecError;
use crate::method::{Codec, Method};

/// Compresses frames. Belongs to one thread.
pub struct FrameCompressor {
    context: CCtx<'static>,
}

impl FrameCompressor {
    /// Creates a context for a level.
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

    /// Replaces `out` with one frame of `content`.
    pub fn compress(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.clear();
        out.reserve(zstd_safe::compress_bound(content.len()));
        self.context.compress2(out, content).map(drop).map_err(|code| CodecError::Context {
            codec: Codec::Zstd,
            reason: zstd_safe::get_error_name(code),
        })
    }
}

/// Decompresses frames. Belongs to one thread.
pub struct FrameDecompressor {
    context: DCtx<'static>,
}

impl FrameDecompressor {
    /// Creates a context.
    pub fn new() -> Result<Self, CodecError> {
        let context =
            DCtx::try_create().ok_or(CodecError::Context { codec: Codec::Zstd, reason: "out of memory" })?;
        Ok(Self { context })
    }

    /// Replaces `out` with the content of `frame`, at most `limit` bytes. Verifies the checksum if the frame
    /// has one.
    pub fn decompress(&mut self, frame: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CodecError> {
        out.clear();
        out.reserve(limit);
        self.context.decompress(out, frame).map_err(|code| CodecError::Corrupt {
            codec: Codec::Zstd,
            size: frame.len(),
            reason: zstd_safe::get_error_name(code),
        })?;
        // The vector may have reserved more room.
        if out.len() > limit {
            Err(CodecError::TooLong { codec: Codec::Zstd, expected: limit })
        } else {
            Ok(())
        }
    }
}

/// Returns the level of a zstd method, `None` for other codecs.
pub fn zstd_level(method: Method) -> Option<i32> {
    (method.codec() == Codec::Zstd).then(|| method.level())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_content_and_detect_damage() {
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
            let is_detected =
                decompressor.decompress(&frame, &mut back, content.len()).is_err() || back != content;
            assert!(is_detected || at == 4, "byte {at}");
            frame[at] ^= 4;
        }
    }
}
