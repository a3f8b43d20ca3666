//! Loads the C libraries that other dumpers compress pages with.

use std::ffi::{c_int, c_ulong, c_void};

use libloading::Library;
use pagehaul_codec::Codec;

type Lzo = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut c_void) -> c_int;
type Snappy = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize) -> c_int;
type Zlib = unsafe extern "C" fn(*mut u8, *mut c_ulong, *const u8, c_ulong, c_int) -> c_int;
type ZstdContext = unsafe extern "C" fn() -> *mut c_void;
type Zstd = unsafe extern "C" fn(*mut c_void, *mut u8, usize, *const u8, usize, c_int) -> usize;

/// One library, ready to compress.
pub struct Peer {
    call: Call,
    /// Keeps the functions loaded.
    _library: Library,
}

enum Call {
    /// With `LZO1X_1_15_MEM_COMPRESS` bytes of memory.
    Lzo(Lzo, Vec<u64>),
    Snappy(Snappy),
    Zlib(Zlib),
    Zstd(Zstd, *mut c_void),
}

impl Peer {
    /// More than the worst case of any of them.
    pub const ROOM: usize = 2 * 4096;

    /// Loads the library that dumpers use for this codec, if it is installed; zlib and zstd at level 1.
    pub fn load(codec: Codec) -> Option<Self> {
        let file = match codec {
            Codec::None => return None,
            Codec::Lzo => "liblzo2.so.2",
            Codec::Snappy => "libsnappy.so.1",
            Codec::Zlib => "libz.so.1",
            Codec::Zstd => "libzstd.so.1",
        };
        // SAFETY: the libraries' initializers have no requirements; the types are those of their headers.
        unsafe {
            let library = Library::new(file).ok()?;
            let call = match codec {
                Codec::None => return None,
                Codec::Lzo => Call::Lzo(*library.get(b"lzo1x_1_15_compress\0").ok()?, vec![0; 32768]),
                Codec::Snappy => Call::Snappy(*library.get(b"snappy_compress\0").ok()?),
                Codec::Zlib => Call::Zlib(*library.get(b"compress2\0").ok()?),
                Codec::Zstd => {
                    let create: libloading::Symbol<'_, ZstdContext> =
                        library.get(b"ZSTD_createCCtx\0").ok()?;
                    let context = create();
                    if context.is_null() {
                        return None;
                    }
                    Call::Zstd(*library.get(b"ZSTD_compressCCtx\0").ok()?, context)
                }
            };
            Some(Self { call, _library: library })
        }
    }

    /// Compresses into the start of `out`, which has [`ROOM`](Self::ROOM). Returns `None` if the page does
    /// not shrink.
    pub fn compress(&mut self, page: &[u8; 4096], out: &mut [u8]) -> Option<usize> {
        assert!(out.len() >= Self::ROOM);
        let (from, to, mut size) = (page.as_ptr(), out.as_mut_ptr(), out.len());
        // SAFETY: `to` has room for the worst case of each; the work memory has the size that the library
        // requires.
        let done = unsafe {
            match &mut self.call {
                Call::Lzo(compress, memory) => {
                    compress(from, page.len(), to, &mut size, memory.as_mut_ptr().cast()) == 0
                }
                Call::Snappy(compress) => compress(from, page.len(), to, &mut size) == 0,
                Call::Zlib(compress) => {
                    let mut length = size as c_ulong;
                    let code = compress(to, &mut length, from, page.len() as c_ulong, 1);
                    size = length as usize;
                    code == 0
                }
                Call::Zstd(compress, context) => {
                    size = compress(*context, to, size, from, page.len(), 1);
                    true
                }
            }
        };
        (done && size < page.len()).then_some(size)
    }
}
