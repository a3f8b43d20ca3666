use std::io;

use zstd_safe::{CCtx, DCtx};

/// Returns a compressor. zstd's own constructor panics where memory is short.
pub(crate) fn compressor() -> io::Result<CCtx<'static>> {
    CCtx::try_create().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

pub(crate) fn decompressor() -> io::Result<DCtx<'static>> {
    DCtx::try_create().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Decompresses a zstd frame into `out`, which must come to exactly `raw` bytes.
///
/// Checks first that so few bytes can decompress to that many: a block of up to 128 KiB takes at least four bytes (RFC 8878,
/// 3.1.1.2). This prevents allocations that only a damaged header asks for.
pub(crate) fn decompress(
    context: &mut DCtx<'static>,
    packed: &[u8],
    raw: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if raw as u64 > (packed.len() as u64).saturating_mul((128 << 10) / 4) {
        return Err(format!("{} bytes of zstd cannot decompress to {raw}", packed.len()));
    }
    out.resize(raw, 0);
    match context.decompress(out.as_mut_slice(), packed) {
        Ok(count) if count == raw => Ok(()),
        Ok(count) => Err(format!("zstd data decompresses to {count} bytes instead of {raw}")),
        Err(code) => Err(format!("zstd data is damaged: {}", zstd_safe::get_error_name(code))),
    }
}
