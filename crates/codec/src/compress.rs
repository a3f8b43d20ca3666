use zstd_safe::{CCtx, CParameter, ParamSwitch};

use crate::error::CodecError;
use crate::method::{Codec, Method};
use crate::{deflate, lzo, zstd};

/// Compresses pages with one method. Belongs to one thread, and allocates nothing per page after the largest
/// page size.
pub struct Compressor {
    method: Method,
    engine: Engine,
    /// Room for the worst case, used where the caller's buffer is shorter.
    scratch: Vec<u8>,
    /// The page that a library compresses. The caller's may be mapped, and change while it is read if the file fails
    /// (`physmem::mapping`): the built-in encoders are safe code and then encode garbage, which the caller discards; a C
    /// library promises nothing.
    copied: Vec<u8>,
}

enum Engine {
    None,
    Zlib(WithBuiltin<deflate::Encoder, libdeflater::Compressor>),
    Lzo(lzo::Encoder),
    Snappy(Box<snap::raw::Encoder>),
    Zstd(WithBuiltin<zstd::Encoder, CCtx<'static>>),
}

/// A built-in encoder for pages of 4 KiB at level 1, and a library for all other sizes and levels.
struct WithBuiltin<E, L> {
    builtin: Option<Box<E>>,
    library: L,
}

impl<E, L> WithBuiltin<E, L> {
    fn new(method: Method, builtin: fn() -> E, library: L) -> Self {
        Self { builtin: (method.level() == 1).then(|| Box::new(builtin())), library }
    }
}

impl Compressor {
    /// Sets up the codec's context.
    pub fn new(method: Method) -> Result<Self, CodecError> {
        let engine = match method.codec() {
            Codec::None => Engine::None,
            Codec::Zlib => {
                Engine::Zlib(WithBuiltin::new(method, deflate::Encoder::new, zlib_context(method)?))
            }
            Codec::Lzo => Engine::Lzo(lzo::Encoder::new()),
            Codec::Snappy => Engine::Snappy(Box::new(snap::raw::Encoder::new())),
            Codec::Zstd => Engine::Zstd(WithBuiltin::new(method, zstd::Encoder::new, zstd_context(method)?)),
        };
        Ok(Self { method, engine, scratch: Vec::new(), copied: Vec::new() })
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Compresses `page` into the start of `out`. Returns the number of bytes, always less than the page's.
    ///
    /// Returns `None` if the page does not shrink, or shrinks to more than `out` holds: it is to be stored
    /// uncompressed, and the contents of `out` are unspecified. An `out` as long as the page suffices; its
    /// length never changes the bytes.
    pub fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        let size = match &mut self.engine {
            Engine::None => return None,
            Engine::Lzo(encoder) => compress_lzo(encoder, page, out)?,
            Engine::Zlib(WithBuiltin { builtin, library }) => {
                if let (Some(encoder), Ok(page)) = (builtin, page.try_into()) {
                    let stream = encoder.encode(page)?;
                    out.get_mut(..stream.len())?.copy_from_slice(stream);
                    return Some(stream.len());
                }
                let bound = library.zlib_compress_bound(page.len());
                let page = copy(page, &mut self.copied);
                with_room(bound, &mut self.scratch, out, page.len(), |room| {
                    library.zlib_compress(page, room).ok()
                })?
            }
            Engine::Snappy(encoder) => {
                let bound = snap::raw::max_compress_len(page.len());
                let page = copy(page, &mut self.copied);
                with_room(bound, &mut self.scratch, out, page.len(), |room| {
                    encoder.compress(page, room).ok()
                })?
            }
            Engine::Zstd(WithBuiltin { builtin, library }) => {
                if let (Some(encoder), Ok(page)) = (builtin, page.try_into()) {
                    let frame = encoder.encode(page)?;
                    out.get_mut(..frame.len())?.copy_from_slice(frame);
                    return Some(frame.len());
                }
                let bound = zstd_safe::compress_bound(page.len());
                let page = copy(page, &mut self.copied);
                with_room(bound, &mut self.scratch, out, page.len(), |room| {
                    library.compress2(room, page).ok()
                })?
            }
        };
        (size < page.len()).then_some(size)
    }
}

fn compress_lzo(encoder: &mut lzo::Encoder, page: &[u8], out: &mut [u8]) -> Option<usize> {
    if page.len() > lzo::MAX_INPUT {
        return None;
    }
    let stream = encoder.encode(page);
    if stream.len() < page.len() {
        out.get_mut(..stream.len())?.copy_from_slice(stream);
    }
    Some(stream.len())
}

fn copy<'c>(page: &[u8], copied: &'c mut Vec<u8>) -> &'c [u8] {
    copied.clear();
    copied.extend_from_slice(page);
    copied
}

/// Runs `compress` on at least `bound` bytes of room, with which libraries do not fail and (zstd, libdeflate)
/// do not change their output.
fn with_room(
    bound: usize,
    scratch: &mut Vec<u8>,
    out: &mut [u8],
    limit: usize,
    compress: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    if let Some(room) = out.get_mut(..bound) {
        return compress(room);
    }
    if scratch.len() < bound {
        scratch.resize(bound, 0);
    }
    let size = compress(scratch)?;
    if size < limit {
        out.get_mut(..size)?.copy_from_slice(scratch.get(..size)?);
    }
    Some(size)
}

fn zlib_context(method: Method) -> Result<libdeflater::Compressor, CodecError> {
    let level = libdeflater::CompressionLvl::new(method.level());
    let level = level.map_err(|_| failed(method, "libdeflate does not have the level"))?;
    Ok(libdeflater::Compressor::new(level))
}

fn failed(method: Method, reason: &'static str) -> CodecError {
    CodecError::Context { codec: method.codec(), reason }
}

fn zstd_context(method: Method) -> Result<CCtx<'static>, CodecError> {
    let mut context = CCtx::try_create().ok_or_else(|| failed(method, "out of memory"))?;
    for parameter in [
        CParameter::CompressionLevel(method.level()),
        CParameter::ChecksumFlag(false),
        // The reader knows the page size; without it a frame is one byte shorter.
        CParameter::ContentSizeFlag(false),
        CParameter::DictIdFlag(false),
        // Since zstd 1.5.5 this match finder (levels 5 to 12, inputs above 16 KiB) salts its hashes with what
        // the context compressed before, so the candidates it forgets could depend on earlier pages.
        CParameter::UseRowMatchFinder(ParamSwitch::Disable),
    ] {
        context.set_parameter(parameter).map_err(|code| failed(method, zstd_safe::get_error_name(code)))?;
    }
    Ok(context)
}
