//! Memory that says that it is on a server, and notes which pages a thread waited for.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use pagehaul_physmem::{ReadError, View, Wrap};

const PAGE_SHIFT: u32 = 12;

/// Says that memory is on a server.
pub struct Served {
    reader: ThreadId,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// Pages that were announced or read.
    here: BTreeSet<u64>,
    /// Pages that the reader needed before.
    waited: BTreeSet<u64>,
}

impl Served {
    /// This thread is the one whose waiting is noted.
    pub fn here() -> Self {
        Self { reader: thread::current().id(), pages: Mutex::default() }
    }

    /// Forgets what the thread waited for.
    pub fn forget(&self) {
        self.pages.lock().unwrap().waited.clear();
    }

    /// Returns the pages that nothing announced or read before the thread needed them.
    pub fn waited(&self) -> BTreeSet<u64> {
        self.pages.lock().unwrap().waited.clone()
    }
}

impl Wrap for Served {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(ServedView { served: self, view })
    }
}

struct ServedView<'a> {
    served: &'a Served,
    view: Box<dyn View + 'a>,
}

impl View for ServedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let mut pages = self.served.pages.lock().unwrap();
        let page = paddr >> PAGE_SHIFT;
        if pages.here.insert(page) && thread::current().id() == self.served.reader {
            pages.waited.insert(page);
        }
        self.view.window(paddr, len)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        let pages =
            ranges.iter().flat_map(|range| range.start >> PAGE_SHIFT..range.end.div_ceil(1 << PAGE_SHIFT));
        self.served.pages.lock().unwrap().here.extend(pages);
    }
}
