//! The output, and bits written to it: the first in the lowest place.

const MASK: usize = 8191;
const SLACK: usize = 8;

/// A frame being written. Indices are masked, so that words are written without a bounds check; what would not fit is
/// lost, but then the frame is longer than the page and nobody reads it.
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

/// Bits on their way to the output.
///
/// They are the highest bits of a word, below which is what was written before and other bits without meaning: so a
/// value needs no mask before it is added.
#[derive(Clone, Copy)]
pub(crate) struct Bits {
    pending: u64,
    count: u32,
    at: usize,
}

impl Bits {
    /// Starts at a byte of the output.
    #[inline(always)]
    pub(crate) fn new(at: usize) -> Self {
        Self { pending: 0, count: 0, at }
    }

    /// Adds the lowest `width` bits of `value`. From one [`flush`](Self::flush) to the next there is room for 57 bits;
    /// other bits in `value` must lie below the 8th and take 8 of that.
    #[inline(always)]
    pub(crate) fn add(&mut self, value: u64, width: u32) {
        self.pending = self.pending >> (width & 63) | value.rotate_right(width);
        self.count += width;
    }

    #[inline(always)]
    pub(crate) fn flush(&mut self, output: &mut Output) {
        put8(output, self.at, self.pending >> (self.count.wrapping_neg() & 63));
        self.at += (self.count / 8) as usize;
        self.count &= 7;
    }

    /// Fills the last byte with zeros. Returns where the output ends.
    #[inline(always)]
    pub(crate) fn finish(mut self, output: &mut Output) -> usize {
        self.flush(output);
        self.at + usize::from(self.count > 0)
    }

    /// Ends a stream that is read from its end: a one marks that.
    #[inline(always)]
    pub(crate) fn finish_backwards(mut self, output: &mut Output) -> usize {
        self.add(1, 1);
        self.finish(output)
    }
}
