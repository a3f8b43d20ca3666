//! Pages that are explored: lists that are searched and sorted, flame graphs that zoom, links that show in place what they lead to.
//! Without the script the text is all there.

/// Styles of [`treemap`](crate::treemap), [`flame`](crate::flame), [`graph`](crate::graph) and lists.
pub const STYLE: &str = include_str!("explore.css");

/// The script of these pages.
pub const SCRIPT: &str = include_str!("explore.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_need_no_network_and_build_no_markup() {
        for forbidden in ["http:", "https:", "@import", "url(", "import ", "fetch(", "innerHTML", "eval("] {
            assert!(![STYLE, SCRIPT].concat().contains(forbidden), "{forbidden}");
        }
    }
}
