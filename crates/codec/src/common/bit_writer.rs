//! The output of the DEFLATE and zstd encoders, and a bit writer: the first bit goes to the least significant
//! place.

const MASK: usize = 8191;
const SLACK: usize = 8;

/// Buffer that a stream or frame is written to.
///
/// Indices are masked, so that words are written without a bounds check. What does not fit is lost; the
/// result is longer than the page then, and is discarded.
pub(crate) type Output = [u8; MASK + 1 + SLACK];

#[inline(always)]
pub(crate) fn put8(output: &mut Output, at: usize, word: u64) {
    let at = at & MASK;
    output[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Writes the lowest `count` bytes of a word, at most 4.
#[inline(always)]
pub(crate) fn put4(output: &mut Output, at: usize, word: u32, count: usize) {
    let at = at & MASK;
    output[at..at + count].copy_from_slice(&word.to_le_bytes()[..count]);
}

/// Writes bit fields.
///
/// The bits that are not yet in the output are the highest of a word. The places below hold bits already
/// written, or bits without meaning, so a value is added without masking.
#[derive(Clone, Copy)]
pub(crate) struct BitWriter {
    pending: u64,
    count: u32,
    at: usize,
}

impl BitWriter {
    /// Starts at byte `at` of the output.
    #[inline(always)]
    pub(crate) fn new(at: usize) -> Self {
        Self { pending: 0, count: 0, at }
    }

    /// Adds the lowest `width` bits of `value`.
    ///
    /// From one [`flush`](Self::flush) to the next there is room for 57 bits. Other bits that are set in
    /// `value` must lie below the 8th, and take 8 bits of that room.
    #[inline(always)]
    pub(crate) fn add(&mut self, value: u64, width: u32) {
        self.pending = self.pending >> (width & 63) | value.rotate_right(width);
        self.count += width;
    }

    /// Writes the whole bytes that are pending.
    #[inline(always)]
    pub(crate) fn flush(&mut self, output: &mut Output) {
        put8(output, self.at, self.pending >> (self.count.wrapping_neg() & 63));
        self.at += (self.count / 8) as usize;
        self.count &= 7;
    }

    /// Pads the last byte with zero bits. Returns where the output ends.
    #[inline(always)]
    pub(crate) fn finish(mut self, output: &mut Output) -> usize {
        self.flush(output);
        self.at + usize::from(self.count > 0)
    }

    /// Ends a bitstream that is read backwards: a 1 bit precedes the padding (RFC 8878, 4.1.2 and 4.2.2).
    #[inline(always)]
    pub(crate) fn finish_backward(mut self, output: &mut Output) -> usize {
        self.add(1, 1);
        self.finish(output)
    }
}
