//! Counts what physical memory was used for, by class, node, zone, block size and address, and shows it as text and as a
//! web page. Filtered dumps are enough: they hold the struct pages of excluded pages.

mod census;
mod count;
mod html;
mod map;
mod tables;
mod text;

pub use census::{Census, ClassCount, Heading, Usage, ZoneCount};
pub use count::count;
pub use html::html;
pub use map::{Map, MapRange};
pub use text::text;
