//! Objects of slabs (SLUB): where they are, and which are free.

use pagehaul_btf::{Fault, Object};
use pagehaul_kernel::ReadVirtual;

/// Maximum number of objects of a slab (`MAX_OBJS_PER_PAGE`).
pub const MAX_SLAB_OBJECTS: u64 = 32_767;
/// Bytes of a pointer.
const POINTER: u64 = 8;
/// Bytes of an object, at most.
const MAX_SIZE: u64 = 1 << 30;

/// How the objects of a cache lie in its slabs.
#[derive(Debug, Clone, Copy)]
pub struct SlabLayout {
    /// Bytes from an object to the next.
    pub size: u64,
    /// Bytes from where that of the first object would be to where it is: with red zones only.
    pub first: u64,
    /// Bytes of it that its user sees.
    pub object_size: u64,
    /// Where in a free object the link to the next is.
    pub link: u64,
    /// What links are disguised with (CONFIG_SLAB_FREELIST_HARDENED).
    secret: Option<u64>,
}

impl SlabLayout {
    /// Reads the layout of a cache, a `struct kmem_cache`.
    ///
    /// # Errors
    /// Fails if its fields cannot be read, or contradict each other.
    pub fn new(cache: &Object<'_>) -> Result<Self, Fault> {
        let (size, link) = (cache.number("size")?, cache.number("offset")?);
        let first = cache.number("red_left_pad").unwrap_or(0);
        let fits = size > 0 && size <= MAX_SIZE && first < size && link <= size - POINTER.min(size);
        if !fits {
            return Err(Fault::WrongKind(format!("the size of its objects, {size},"), "a layout of slabs"));
        }
        let object_size = cache.number("object_size")?;
        Ok(Self { size, first, object_size, link, secret: cache.number("random").ok() })
    }

    /// Returns the addresses of the free objects of a list that begins with `first`. An error ends it if a link cannot be read, or the
    /// list is longer than a slab can have objects.
    pub fn free_objects<'a>(
        &'a self,
        memory: &'a dyn ReadVirtual,
        first: u64,
    ) -> impl Iterator<Item = Result<u64, Fault>> + 'a {
        let (mut last, mut left) = (None, MAX_SLAB_OBJECTS + 1);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            let end = |left: &mut u64, why| {
                *left = 0;
                Some(Err(why))
            };
            let object = match last.map_or(Ok(first), |object| self.next(memory, object)) {
                Ok(0) => {
                    left = 0;
                    return None;
                }
                Ok(object) => object,
                Err(why) => return end(&mut left, why),
            };
            if left == 0 {
                let list = format!("the list of free objects at {first:#x}");
                return end(&mut left, Fault::WrongKind(list, "a list: it meets itself"));
            }
            last = Some(object);
            Some(Ok(object))
        })
    }

    fn next(&self, memory: &dyn ReadVirtual, object: u64) -> Result<u64, Fault> {
        let at = object.wrapping_add(self.link);
        let stored = memory.u64(at)?;
        // `freelist_ptr_decode`: 2482ddec670f (4.14), 1ad53d9fa3f6 (5.7).
        Ok(self.secret.map_or(stored, |secret| stored ^ secret ^ at.swap_bytes()))
    }

    /// Returns the number of an object in its slab, by their addresses.
    pub fn index(&self, slab: u64, object: u64) -> Option<u64> {
        let offset = object.checked_sub(slab)?.checked_sub(self.first)?;
        let index = offset.is_multiple_of(self.size).then(|| offset / self.size)?;
        (index < MAX_SLAB_OBJECTS).then_some(index)
    }
}
