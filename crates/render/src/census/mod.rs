//! What memory was used for.

mod html;
mod tables;
mod text;

pub use html::html;
pub use text::text;
