//! What became of each page of a damaged dump, held against the vmcore it was made of.
//!
//! ```sh
//! states VMCORE DUMP [PART…]
//! ```
//!
//! Prints how many pages are right, wrong, excluded, missing and damaged; fails where the dump is refused.

use std::error::Error;
use std::path::PathBuf;

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, PageState};
use pagehaul_vmcore::Source;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args().skip(1).map(PathBuf::from);
    let truth = Source::open(&paths.next().ok_or("VMCORE DUMP [PART…]")?, MapPolicy::default())?;
    let dump = Source::open_all(&paths.collect::<Vec<_>>(), MapPolicy::default())?;
    let (mut truth_view, mut view) = (truth.memory().view(), dump.memory().view());
    let (mut expected, mut page) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
    let (mut right, mut wrong, mut excluded, mut missing, mut damaged) = (0, 0, 0, 0, 0);
    for piece in truth.memory().ranges().pieces() {
        for pfn in piece.start >> 12..piece.end.div_ceil(PAGE_SIZE as u64) {
            *match view.copy_page(PhysAddr::of_4k_page(pfn), &mut page).map_err(|error| error.state()) {
                Ok(()) => match truth_view.copy_page(PhysAddr::of_4k_page(pfn), &mut expected) {
                    Ok(()) if page == expected => &mut right,
                    _ => &mut wrong,
                },
                Err(PageState::Damaged) => &mut damaged,
                Err(PageState::Missing) => &mut missing,
                Err(_) => &mut excluded,
            } += 1;
        }
    }
    println!("{right} {wrong} {excluded} {missing} {damaged}");
    Ok(())
}
