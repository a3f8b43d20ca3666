//! Page reclaim: reports and comparisons.

mod figures;
mod html;
mod tables;
mod text;

pub use html::{comparison_page, report_page};
pub use text::{comparison, report};
