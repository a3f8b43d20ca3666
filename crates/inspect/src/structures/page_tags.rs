//! Allocation tags in the flags of struct pages (`sysctl.vm.mem_profiling=1,compressed`, 4835f747d3ed, 6.13): their numbers, in bits that
//! nothing else uses.

use pagehaul_btf::Fault;

use crate::machine::Machine;

/// `CODETAG_ID_FIRST`: 0 stands for no tag, 1 for pages that are never counted.
const FIRST: u64 = 2;

/// Where numbers are, and the tags that they stand for.
#[derive(Debug, Clone)]
pub(crate) struct PageTags {
    shift: u32,
    mask: u64,
    /// Bytes of a tag.
    size: u64,
    /// Those of the kernel come first, then those of all modules.
    kernel: Table,
    modules: Table,
}

/// Tags behind each other.
#[derive(Debug, Clone, Copy, Default)]
struct Table {
    first: u64,
    count: u64,
}

impl PageTags {
    /// Finds where they are.
    pub(crate) fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let (shift, mask) = (machine.u32("alloc_tag_ref_offs")?, machine.u64("alloc_tag_ref_mask")?);
        let size = machine.space().size_of("alloc_tag")?;
        let section = machine.variable("kernel_tags", "alloc_tag_kernel_section")?;
        let kernel = Table { first: section.get("first_tag")?.pointer()?, count: section.number("count")? };
        let modules = match machine.variable("module_tags", "alloc_tag_module_section") {
            Ok(section) => {
                let (first, bytes) = (section.number("start_addr")?, section.number("size")?);
                Table { first, count: bytes.checked_div(size).unwrap_or(0) }
            }
            // Without modules.
            Err(Fault::NoSymbol(_)) => Table::default(),
            Err(why) => return Err(why),
        };
        let fits = mask != 0
            && mask & mask.wrapping_add(1) == 0
            && mask.leading_zeros() >= shift
            && kernel.first >> 63 == 1
            && kernel.count > 0
            && kernel.count <= mask
            && kernel.count.saturating_add(modules.count) <= mask.saturating_add(1);
        fits.then_some(Self { shift, mask, size, kernel, modules }).ok_or_else(|| {
            Fault::NotRead(format!(
                "{} tags of the kernel and {} of modules do not fit flags of struct pages with the mask {mask:#x} at bit {shift}",
                kernel.count, modules.count
            ))
        })
    }

    /// Returns the address of the tag that the flags of a page have.
    #[inline]
    pub(crate) fn tag(&self, flags: u64) -> Option<u64> {
        let number = (flags >> self.shift & self.mask).checked_sub(FIRST)?;
        let (table, number) = match number.checked_sub(self.kernel.count) {
            None => (self.kernel, number),
            Some(of_modules) => (self.modules, of_modules),
        };
        (number < table.count).then(|| table.first.wrapping_add(number.wrapping_mul(self.size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_tags_of_the_kernel_and_of_modules() {
        let kernel = Table { first: 0xffff_ffff_8300_0000, count: 3 };
        let modules = Table { first: 0xffff_ffff_c000_0000, count: 2 };
        let tags = PageTags { shift: 40, mask: 0x1fff, size: 40, kernel, modules };
        let of = |number: u64| tags.tag(number << 40 | 0x17ff_0000_0000_00ff & !(0x1fff << 40));
        assert_eq!([of(0), of(1)], [None, None]);
        assert_eq!(of(2), Some(kernel.first));
        assert_eq!(of(4), Some(kernel.first + 80));
        assert_eq!([of(5), of(6)], [Some(modules.first), Some(modules.first + 40)]);
        assert_eq!([of(7), of(0x1fff)], [None, None]);
    }
}
