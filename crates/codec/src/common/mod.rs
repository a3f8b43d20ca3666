//! What the encoders share: reading words of a page, measuring matches, writing bits, lengths of prefix
//! codes.

pub(crate) mod bit_writer;
pub(crate) mod code_lengths;
pub(crate) mod matches;

/// Returns a zeroed array on the heap that never was on the stack.
pub(crate) fn zeroed<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(array) = vec![T::default(); N].into_boxed_slice().try_into() else {
        unreachable!("the vector was made with the array's length")
    };
    array
}
