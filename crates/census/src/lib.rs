//! Where a machine's memory was when its kernel died: what each page was used for, by class, node, zone, block size and
//! address. Works on filtered dumps too, as struct pages tell of the pages that were left out.

mod census;
mod html;
mod map;

pub use census::{Census, Count, Heading, ZoneCount, take};
pub use html::html;
pub use map::{Map, Stretch};
