use std::cmp::Reverse;

use maud::{Markup, PreEscaped, html};
use pagehaul_census::{Census, ClassCount, ZoneCount};
use pagehaul_present::Tone;
use pagehaul_present::html::{facts, page, section, swatch, tiles};
use pagehaul_present::number::percent;
use pagehaul_present::time::utc;

use super::tables::{self, color, size};

const STYLE: &str = include_str!("census.css");
/// Draws the map from the data in the page.
const SCRIPT: &str = include_str!("map.js");

/// Builds one self-contained web page of a census: composition, a map of physical memory, zones and blocks.
pub fn html(census: &Census) -> Result<String, serde_json::Error> {
    let mut classes: Vec<&ClassCount> = census.classes.iter().collect();
    classes.sort_by_key(|of| Reverse(of.pages));
    let heading = &census.heading;
    let release = heading.release.as_deref().unwrap_or("(unknown release)");
    let crashed = heading.crash_time.map(|time| format!("crashed {}", utc(time)));
    let body = html! {
        h1 { "Physical memory of Linux " (release) }
        (facts([heading.dump.clone()].into_iter().chain(crashed)))
        (summary(census, &classes))
        (section("Composition", "What each page was used for when the kernel died.", html! {
            (bar(census, &classes.iter().map(|of| (of.class, of.pages)).collect::<Vec<_>>(), census.pages, "large"))
            (tables::classes(census, classes.iter().copied()))
        }))
        (map(census, &classes)?)
        @if !census.zones.is_empty() {
            (section("Nodes and zones", "Each bar is as long as its zone is large.", zones(census)))
        }
        (section(
            "Blocks",
            "How many blocks of each size, by order (2^order pages). Order 0: single pages. Free blocks are the buddy \
             allocator's, the others compound pages; order 9 is a huge page of 2 MiB.",
            tables::orders(census),
        ))
        @if !census.warnings.is_empty() {
            (section("Notes", "", html! { ul { @for warning in &census.warnings { li { (warning) } } } }))
        }
    };
    Ok(page(&format!("{}: physical memory", heading.dump), STYLE, SCRIPT, &body))
}

/// The key figures.
fn summary(census: &Census, classes: &[&ClassCount]) -> Markup {
    let free: u64 = classes.iter().filter(|of| of.class == "free").map(|of| of.pages).sum();
    let in_dump: u64 = classes.iter().map(|of| of.in_dump).sum();
    let largest = classes.iter().find(|of| of.class != "free");
    let figures = [
        Some((size(census, census.pages), "memory".to_owned())),
        Some((percent(census.pages - free, census.pages), "in use".into())),
        Some((size(census, free), "free".into())),
        largest.map(|of| (size(census, of.pages), format!("most of what is in use: {}", of.class))),
        Some((size(census, in_dump), format!("in the dump ({})", percent(in_dump, census.pages)))),
    ];
    tiles(figures.into_iter().flatten().map(|(value, name)| (Tone::Plain, value, name)))
}

/// A bar divided by class.
fn bar(census: &Census, counts: &[(&str, u64)], all: u64, class: &str) -> Markup {
    let width = |pages: u64| 100.0 * pages as f64 / all.max(1) as f64;
    html! {
        div.bar.(class) {
            @for &(name, pages) in counts {
                div style=(format!("background:{};width:{:.3}%", color(name), width(pages)))
                    title=(format!("{name}: {}, {}", size(census, pages), percent(pages, all))) {}
            }
        }
    }
}

fn map(census: &Census, classes: &[&ClassCount]) -> Result<Markup, serde_json::Error> {
    // `</` would end the script.
    let data = serde_json::to_string(&census.map)?.replace("</", "<\\/");
    let cell = census.map.cell_pages;
    let about = format!(
        "Each square is {} ({cell} pages), each row {}; a square is divided by what is in it. Addresses are physical. \
         Point at a square for its contents.",
        size(census, cell),
        size(census, cell.saturating_mul(128))
    );
    let body = html! {
        div.legend {
            @for of in classes {
                button aria-pressed="false" data-class=(of.class) { (swatch(color(of.class))) (of.class) }
            }
        }
        div.scroll { canvas id="map" data-page-size=(census.page_size) {} }
        div id="tip" {}
        script id="cells" type="application/json" { (PreEscaped(data)) }
        script id="names" type="application/json" {
            (PreEscaped(serde_json::to_string(
                &census.class_names.iter().map(|name| (name, color(name))).collect::<Vec<_>>(),
            )?))
        }
    };
    Ok(section("Map of physical memory", &about, body))
}

fn zones(census: &Census) -> Markup {
    let largest = census.zones.iter().map(ZoneCount::pages).max().unwrap_or(0).max(1);
    html! {
        table {
            thead { tr { th.text { "node" } th.text { "zone" } th { "size" } th.text { "what is in it" } } }
            tbody { @for zone in &census.zones { (zone_row(census, zone, largest)) } }
        }
    }
}

fn zone_row(census: &Census, zone: &ZoneCount, largest: u64) -> Markup {
    let mut counts: Vec<_> = zone.classes.iter().map(|(name, pages)| (*name, *pages)).collect();
    counts.sort_by_key(|(_, pages)| Reverse(*pages));
    let width = (100.0 * zone.pages() as f64 / largest as f64).max(1.0);
    html! {
        tr {
            td.text { (zone.node) }
            td.text { (zone.zone) }
            td { (size(census, zone.pages())) }
            td.text.wide { div style=(format!("width:{width:.3}%")) { (bar(census, &counts, zone.pages(), "small")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_need_no_network() {
        for outside in ["http:", "https:", "@import", "url(", "import ", "fetch("] {
            assert!(![STYLE, SCRIPT].concat().contains(outside), "{outside}");
        }
    }
}
