use crate::Census;

/// The page, all in one: styles and script are in it, and the census takes the place of this.
const PAGE: &str = include_str!("page.html");
const PLACE: &str = "/*CENSUS*/null";

/// The census as one HTML page that needs nothing else: composition, blocks, zones, and a map of physical memory.
pub fn html(census: &Census) -> Result<String, serde_json::Error> {
    // The page's script ends at the first `</`, wherever it stands; file names may have one.
    let data = serde_json::to_string(census)?.replace("</", "<\\/").replace('\u{2028}', "\\u2028");
    Ok(PAGE.replacen(PLACE, &data, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_else() {
        assert_eq!(PAGE.matches(PLACE).count(), 1);
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
    }
}
