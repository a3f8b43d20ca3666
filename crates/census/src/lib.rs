//! Counts what physical memory was used for, by class, node, zone, block size and address. Filtered dumps are enough: they hold the
//! struct pages of excluded pages.

mod census;
mod count;
mod map;

pub use census::{Census, ClassCount, Heading, Usage, ZoneCount};
pub use count::count;
pub use map::{Map, MapRange};
