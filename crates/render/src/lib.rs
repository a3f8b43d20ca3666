//! Draws reports: text and web pages of the typed reports that libraries return.

pub mod capture;
