//! Reports as one self-contained web page.
use crate::report::{Comparison, Report};
/// TODO
pub fn report_page(reports: &[Report]) -> String {
    let _ = reports;
    String::new()
}
/// TODO
pub fn comparison_page(comparison: &Comparison, reports: &[Report]) -> String {
    let _ = (comparison, reports);
    String::new()
}
