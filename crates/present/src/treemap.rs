//! Treemaps: areas in proportion to sizes.

use maud::{Markup, html};

/// A rectangle. Its unit is the caller's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A part of a treemap, which may be divided in turn.
#[derive(Debug, Clone, Default)]
pub struct Area {
    /// Written in it where there is room.
    pub name: String,
    /// Its size in words.
    pub note: String,
    /// Its size.
    pub size: f64,
    /// A CSS background.
    pub color: &'static str,
    /// Place on the same page to which it leads: the `id` of an element.
    pub place: Option<String>,
    /// What it consists of. The sizes should add up to its own.
    pub parts: Vec<Area>,
}

/// Pixels of a treemap on a wide page; it is stretched with the page.
const WHOLE: Rect = Rect { x: 0.0, y: 0.0, width: 1200.0, height: 440.0 };
/// Pixels of the line with the name of an area that is divided.
const HEADING: f64 = 19.0;

/// Divides `area` among sizes, which should be sorted, the largest first. The rectangles are as square as rows of them can be
/// (Bruls, Huizing and van Wijk, Squarified Treemaps, 2000).
pub fn squarify(sizes: &[f64], area: Rect) -> Vec<Rect> {
    let usable = |size: f64| if size.is_finite() { size.max(0.0) } else { 0.0 };
    let total: f64 = sizes.iter().map(|size| usable(*size)).sum();
    let scale = if total > 0.0 { area.width * area.height / total } else { 0.0 };
    let areas: Vec<f64> = sizes.iter().map(|size| usable(*size) * scale).collect();
    let mut rest = area;
    let mut left = areas.as_slice();
    let mut out = Vec::with_capacity(sizes.len());
    while !left.is_empty() {
        let row = left.split_at(row_length(left, rest.width.min(rest.height)));
        place_row(row.0, &mut rest, &mut out);
        left = row.1;
    }
    out
}

/// How many areas make the next row: as long as the worst ratio of their sides becomes no worse.
fn row_length(areas: &[f64], side: f64) -> usize {
    let mut sum = 0.0;
    let mut worst = f64::INFINITY;
    let largest = areas.first().copied().unwrap_or(0.0);
    for (at, size) in areas.iter().enumerate() {
        sum += size;
        let ratio = (side * side * largest / (sum * sum)).max(sum * sum / (side * side * size));
        // Not a number where all are empty.
        if at > 0 && (ratio > worst || ratio.is_nan()) {
            return at;
        }
        worst = ratio;
    }
    areas.len()
}

/// Places a row along the shorter side of `rest`, and takes it off.
fn place_row(row: &[f64], rest: &mut Rect, out: &mut Vec<Rect>) {
    let sum: f64 = row.iter().sum();
    let upright = rest.width >= rest.height;
    let side = rest.width.min(rest.height);
    let longest = rest.width.max(rest.height);
    let thickness = if side > 0.0 { (sum / side).min(longest) } else { 0.0 };
    let mut along = 0.0;
    for size in row {
        let length = if sum > 0.0 { side * size / sum } else { 0.0 };
        out.push(match upright {
            true => Rect { x: rest.x, y: rest.y + along, width: thickness, height: length },
            false => Rect { x: rest.x + along, y: rest.y, width: length, height: thickness },
        });
        along += length;
    }
    if upright {
        rest.x += thickness;
        rest.width -= thickness;
    } else {
        rest.y += thickness;
        rest.height -= thickness;
    }
}

/// Builds a treemap for a web page, of two levels.
pub fn treemap(areas: &[Area]) -> Markup {
    let mut areas: Vec<&Area> = areas.iter().collect();
    areas.sort_by(|a, b| b.size.total_cmp(&a.size));
    let places = squarify(&sizes(&areas), WHOLE);
    html! {
        div.treemap {
            @for (area, place) in areas.iter().zip(places).filter(|(area, _)| area.size > 0.0) {
                div.area style=(style(place, WHOLE)) {
                    (cell(area, "heading"))
                    div.parts { (parts(area, place)) }
                }
            }
        }
    }
}

fn parts(area: &Area, place: Rect) -> Markup {
    let inner = Rect { x: 0.0, y: 0.0, width: place.width, height: (place.height - HEADING).max(1.0) };
    let mut parts: Vec<&Area> = area.parts.iter().filter(|part| part.size > 0.0).collect();
    parts.sort_by(|a, b| b.size.total_cmp(&a.size));
    if parts.is_empty() {
        return html! { div.part style=(format!("left:0;top:0;width:100%;height:100%;background:{}", area.color)) {} };
    }
    let places = squarify(&sizes(&parts), inner);
    html! {
        @for (part, at) in parts.iter().zip(places) {
            div.part style=(format!("{};background:{}", style(at, inner), part.color)) title=(title(part)) { (cell(part, "name")) }
        }
    }
}

fn cell(area: &Area, class: &str) -> Markup {
    let text = html! { (area.name) " " small { (area.note) } };
    html! {
        @match &area.place {
            Some(place) => a.(class) href=(format!("#{place}")) title=(title(area)) { (text) },
            None => span.(class) { (text) },
        }
    }
}

fn title(area: &Area) -> String {
    format!("{}: {}", area.name, area.note)
}

fn sizes(areas: &[&Area]) -> Vec<f64> {
    areas.iter().map(|area| area.size).collect()
}

fn style(place: Rect, whole: Rect) -> String {
    let share = |part: f64, all: f64| 100.0 * part / all.max(f64::MIN_POSITIVE);
    format!(
        "left:{:.2}%;top:{:.2}%;width:{:.2}%;height:{:.2}%",
        share(place.x, whole.width),
        share(place.y, whole.height),
        share(place.width, whole.width),
        share(place.height, whole.height)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Rect = Rect { x: 0.0, y: 0.0, width: 6.0, height: 4.0 };

    #[test]
    fn areas_are_in_proportion_and_within_the_whole() {
        let sizes = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0];
        let places = squarify(&sizes, AREA);
        for (size, place) in sizes.iter().zip(&places) {
            assert!((place.width * place.height - size).abs() < 1e-9, "{place:?}");
            assert!(place.x + place.width <= 6.0 + 1e-9 && place.y + place.height <= 4.0 + 1e-9, "{place:?}");
            assert!(place.width / place.height < 4.0 && place.height / place.width < 4.0, "{place:?}");
        }
        // The example of the paper begins with two areas of 3 by 2.
        assert_eq!((places[0].width, places[0].height), (3.0, 2.0));
    }

    #[test]
    fn areas_do_not_overlap() {
        let places = squarify(&[9.0, 5.0, 5.0, 1.0, 0.5, 0.25], AREA);
        for (at, a) in places.iter().enumerate() {
            for b in &places[at + 1..] {
                let apart = |from: f64, width: f64, other: f64| from + width <= other + 1e-9;
                let apart = apart(a.x, a.width, b.x)
                    || apart(b.x, b.width, a.x)
                    || apart(a.y, a.height, b.y)
                    || apart(b.y, b.height, a.y);
                assert!(apart, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn sizes_that_are_none_take_no_room() {
        for sizes in [&[][..], &[0.0], &[0.0, 0.0], &[f64::NAN, -1.0], &[f64::INFINITY, 1.0, 0.0]] {
            let places = squarify(sizes, AREA);
            assert_eq!(places.len(), sizes.len());
            assert!(places.iter().all(|place| (place.width * place.height).is_finite()), "{places:?}");
        }
        let many = squarify(&vec![1.0; 10_000], AREA);
        assert!(many.iter().all(|place| place.width > 0.0 && place.height > 0.0));
    }

    #[test]
    fn names_are_escaped() {
        let part = Area { name: "<i>".into(), size: 1.0, color: "red", ..Area::default() };
        let area = Area { parts: vec![part], place: Some("a\"".into()), size: 1.0, ..Area::default() };
        let map = treemap(&[area]).into_string();
        assert!(map.contains("&lt;i&gt;") && map.contains("#a&quot;") && !map.contains("NaN"), "{map}");
    }
}
