//! What a core keeps if it may not hold all memory.

use pagehaul_elfcore::ProgramHeader;

/// Returns how many bytes of each of `loads`, from its start, are kept within `limit` bytes of memory. `existing` has the
/// bytes of each that take room. Stacks come first, then the smallest others: a backtrace with the variables of its frames
/// needs little of a large heap. The first that does not fit is cut at a page.
pub(super) fn within(
    limit: u64,
    loads: &[ProgramHeader],
    existing: &[u64],
    stack_pointers: &[u64],
    page: u64,
) -> Vec<u64> {
    let total = existing.iter().copied().fold(0, u64::saturating_add);
    if total <= limit {
        return loads.iter().map(|load| load.file_size).collect();
    }
    let is_stack = |load: &ProgramHeader| {
        stack_pointers.iter().any(|pointer| pointer.wrapping_sub(load.vaddr) < load.memory_size)
    };
    let mut order: Vec<(bool, u64, usize)> = Vec::with_capacity(loads.len());
    for (index, (load, &bytes)) in loads.iter().zip(existing).enumerate() {
        order.push((!is_stack(load), bytes, index));
    }
    order.sort_unstable();
    let (mut kept, mut left) = (vec![0; loads.len()], limit);
    for (_, bytes, index) in order {
        let (Some(load), Some(kept)) = (loads.get(index), kept.get_mut(index)) else { continue };
        if bytes > left {
            *kept = load.file_size.min(left / page * page);
            break;
        }
        *kept = load.file_size;
        left -= bytes;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::PAGE;
    use proptest::prelude::*;

    fn load(vaddr: u64, pages: u64) -> ProgramHeader {
        ProgramHeader {
            vaddr,
            file_size: pages * PAGE,
            memory_size: pages * PAGE,
            ..ProgramHeader::default()
        }
    }

    #[test]
    fn stacks_come_before_heaps() {
        let loads = [load(0x10_0000, 1), load(0x20_0000, 100), load(0x100_0000, 8)];
        let sizes = loads.map(|load| load.file_size);
        let kept = |limit| within(limit, &loads, &sizes, &[0x100_0000 + 5 * PAGE], PAGE).map_pages();
        assert_eq!(kept(u64::MAX), [1, 100, 8]);
        assert_eq!(kept(20 * PAGE + 1), [1, 11, 8]);
        assert_eq!(kept(8 * PAGE), [0, 0, 8]);
        assert_eq!(kept(3 * PAGE), [0, 0, 3]);
        // What was never touched takes no room.
        let touched = [PAGE, PAGE, PAGE];
        assert_eq!(within(3 * PAGE, &loads, &touched, &[], PAGE).map_pages(), [1, 100, 8]);
    }

    trait Pages {
        fn map_pages(self) -> Vec<u64>;
    }

    impl Pages for Vec<u64> {
        fn map_pages(self) -> Vec<u64> {
            self.into_iter().map(|bytes| bytes / PAGE).collect()
        }
    }

    proptest! {
        #[test]
        fn no_more_than_the_limit_is_kept(
            pages in proptest::collection::vec(0u64..50, 0..20),
            limit in 0u64..1000,
            pointer in 0u64..20,
        ) {
            let loads: Vec<_> = pages.iter().enumerate().map(|(index, &pages)| load((index as u64) << 20, pages)).collect();
            let sizes: Vec<u64> = loads.iter().map(|load| load.file_size).collect();
            let kept = within(limit * PAGE, &loads, &sizes, &[pointer << 20], PAGE);
            prop_assert!(kept.iter().sum::<u64>() <= limit * PAGE);
            prop_assert!(kept.iter().zip(&sizes).all(|(kept, size)| kept <= size && kept % PAGE == 0));
            if sizes.iter().sum::<u64>() > limit * PAGE {
                prop_assert!(kept.iter().sum::<u64>() + PAGE > limit * PAGE);
            }
        }
    }
}
