//! Reports as people read them.

mod html;
mod numbers;
mod text;

pub use html::{comparison_page, report_page};
pub use text::{comparison, report};
