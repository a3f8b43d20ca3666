//! Shows results: tables, numbers and times, written one way in every command and report; with the feature `html` also
//! web pages and charts.

#[cfg(feature = "html")]
pub mod explore;
#[cfg(feature = "html")]
pub mod flame;
#[cfg(feature = "html")]
pub mod graph;
#[cfg(feature = "html")]
pub mod html;
pub mod number;
mod paint;
mod printable;
mod sentence;
#[cfg(feature = "html")]
pub mod svg;
mod table;
pub mod time;
#[cfg(feature = "html")]
pub mod treemap;
mod wrap;

pub use paint::paint;
pub use printable::{printable, printable_json, printable_lines};
pub use sentence::sentence;
pub use table::{Cell, Table, Tone};
pub use wrap::wrap;
