//! Memory that has lost one page.

use pagehaul_physmem::{ReadError, View, Wrap};

const PAGE: u64 = 4096;

/// Loses the page of 4 KiB at an address.
pub struct WithoutPage(pub u64);

impl Wrap for WithoutPage {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(ViewWithoutPage { view, lost: self.0 })
    }
}

struct ViewWithoutPage<'a> {
    view: Box<dyn View + 'a>,
    lost: u64,
}

impl View for ViewWithoutPage<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        if paddr / PAGE == self.lost / PAGE {
            return Err(ReadError::Missing { paddr, reason: "the test lost it".into() });
        }
        let before = self.lost.checked_sub(paddr).filter(|before| *before > 0);
        self.view.window(paddr, before.map_or(len, |before| len.min(before as usize)))
    }
}
