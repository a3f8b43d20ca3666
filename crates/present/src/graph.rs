//! Graphs in which every node points to at most one other, as SVG: who waits for whom. Such a graph is made of trees, some of which
//! grow from a cycle.

use maud::{Markup, html};

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// What it is, in one line; cut if it is too long.
    pub name: String,
    /// What is to be known of it, in one line.
    pub note: String,
    /// The node that it points to, by its index.
    pub next: Option<usize>,
    /// Place on the same page to which it leads: the `id` of an element.
    pub place: Option<String>,
}

/// Sizes in pixels.
const WIDTH: f64 = 264.0;
const HEIGHT: f64 = 42.0;
const ACROSS: f64 = 56.0;
const BELOW: f64 = 12.0;
const MARGIN: f64 = 10.0;
/// Room above a cycle for the arrow that closes it.
const ARC: f64 = 26.0;
/// Letters that fit in a node.
const LETTERS: usize = 38;

/// Where a node is, in columns and pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    column: usize,
    y: f64,
}

/// The places of all nodes, and what else the drawing needs.
#[derive(Debug)]
struct Layout {
    places: Vec<Place>,
    in_cycle: Vec<bool>,
    /// The first node of each cycle and the last, which the first points to.
    closing: Vec<(usize, usize)>,
    height: f64,
}

impl Layout {
    /// Places every node right of the one that it points to.
    fn new(nodes: &[Node]) -> Self {
        let next = |at: usize| nodes.get(at).and_then(|node| node.next).filter(|next| *next < nodes.len());
        let mut pointing: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for at in 0..nodes.len() {
            if let Some(pointing) = next(at).and_then(|next| pointing.get_mut(next)) {
                pointing.push(at);
            }
        }
        let mut layout = Self {
            places: vec![Place { column: 0, y: MARGIN }; nodes.len()],
            in_cycle: vec![false; nodes.len()],
            closing: Vec::new(),
            height: MARGIN,
        };
        for cycle in cycles(nodes.len(), next) {
            // The first node of the cycle is the leftmost; what it points to is the rightmost.
            let (Some(first), Some(last)) = (cycle.first(), cycle.get(1).or(cycle.first())) else { continue };
            cycle.iter().for_each(|at| layout.in_cycle[*at] = true);
            layout.closing.push((*first, *last));
            layout.height += ARC;
            layout.tree(*first, &pointing);
        }
        for root in (0..nodes.len()).filter(|at| next(*at).is_none()) {
            layout.tree(root, &pointing);
        }
        layout
    }

    /// Places a root and all that point to it, directly or not. Of a cycle, those before the root come in the root's row.
    fn tree(&mut self, root: usize, pointing: &[Vec<usize>]) {
        let mut pending = vec![(root, 0)];
        let mut new_row = false;
        while let Some((at, column)) = pending.pop() {
            let Some(place) = self.places.get_mut(at) else { return };
            if new_row {
                self.height += HEIGHT + BELOW;
            }
            *place = Place { column, y: self.height };
            let mut before: Vec<usize> = pointing.get(at).cloned().unwrap_or_default();
            before.retain(|other| *other != root);
            // The first is in the row of what it points to, and of a cycle that is the cycle.
            before.sort_by_key(|other| !self.in_cycle.get(*other).copied().unwrap_or(false));
            new_row = before.is_empty();
            pending.extend(before.into_iter().rev().map(|other| (other, column + 1)));
        }
        self.height += HEIGHT + BELOW;
    }
}

/// Finds all cycles: each node points to the next one of its cycle, the last to the first.
fn cycles(nodes: usize, next: impl Fn(usize) -> Option<usize>) -> Vec<Vec<usize>> {
    // The start of the path on which a node was seen first.
    let mut seen: Vec<Option<usize>> = vec![None; nodes];
    let mut found = Vec::new();
    for start in 0..nodes {
        let mut at = start;
        loop {
            match seen.get(at).copied().flatten() {
                None => {}
                Some(other) if other == start => {
                    let mut cycle = vec![at];
                    let mut member = next(at);
                    while let Some(other) = member.filter(|other| *other != at) {
                        cycle.push(other);
                        member = next(other);
                    }
                    found.push(cycle);
                    break;
                }
                Some(_) => break,
            }
            if let Some(seen) = seen.get_mut(at) {
                *seen = Some(start);
            }
            match next(at) {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    found
}

/// Builds the graph for a web page. Arrows of cycles have the class `cycle`. `label` says what it shows.
pub fn figure(nodes: &[Node], label: &str) -> Markup {
    let layout = Layout::new(nodes);
    let columns = layout.places.iter().map(|place| place.column + 1).max().unwrap_or(0);
    let width = 2.0 * MARGIN + columns as f64 * (WIDTH + ACROSS) - ACROSS;
    let (width, height) = (width.max(0.0), layout.height);
    html! {
        div.scroll {
            svg.graph viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) role="img" aria-label=(label) {
                @for (at, node) in nodes.iter().enumerate() { (arrow(at, node, &layout)) }
                @for (node, (place, in_cycle)) in nodes.iter().zip(layout.places.iter().zip(&layout.in_cycle)) {
                    (drawing(node, *place, *in_cycle))
                }
            }
        }
    }
}

fn x(column: usize) -> f64 {
    MARGIN + column as f64 * (WIDTH + ACROSS)
}

fn arrow(at: usize, node: &Node, layout: &Layout) -> Markup {
    let place = |at: usize| layout.places.get(at).copied();
    let (Some(from), Some((next, to))) = (place(at), node.next.and_then(|next| Some((next, place(next)?))))
    else {
        return html! {};
    };
    let closes = layout.closing.contains(&(at, next));
    let in_cycle = |at: usize| layout.in_cycle.get(at).copied().unwrap_or(false);
    let class = if in_cycle(at) && in_cycle(next) { "edge cycle" } else { "edge" };
    let (middle_from, middle_to) = (from.y + HEIGHT / 2.0, to.y + HEIGHT / 2.0);
    let (path, head) = match closes {
        // Over the cycle, from its left end to its right one.
        true => {
            let (left, right) = (x(from.column) + WIDTH / 2.0, x(to.column) + WIDTH / 2.0 + 8.0);
            let top = from.y.min(to.y) - ARC + 8.0;
            let path = format!("M{left:.0} {:.0}V{top:.0}H{right:.0}V{:.0}", from.y, to.y);
            (path, format!("M{right:.0} {:.0}l-4 -8h8z", to.y))
        }
        false => {
            let (start, end) = (x(from.column), x(to.column) + WIDTH);
            let turn = end + ACROSS / 2.0;
            let path = format!("M{start:.0} {middle_from:.0}H{turn:.0}V{middle_to:.0}H{end:.0}");
            (path, format!("M{end:.0} {middle_to:.0}l8 -4v8z"))
        }
    };
    html! { g class=(class) { path d=(path) {} path.head d=(head) {} } }
}

fn drawing(node: &Node, place: Place, in_cycle: bool) -> Markup {
    let (left, top) = (x(place.column), place.y);
    let class = if in_cycle { "node cycle" } else { "node" };
    let shape = html! {
        title { (node.name) ": " (node.note) }
        rect x=(left) y=(top) width=(WIDTH) height=(HEIGHT) rx="4" {}
        text.name x=(left + 9.0) y=(top + 17.0) { (short(&node.name)) }
        text x=(left + 9.0) y=(top + 33.0) { (short(&node.note)) }
    };
    html! {
        @match &node.place {
            Some(place) => a class=(class) href=(format!("#{place}")) { (shape) },
            None => g class=(class) { (shape) },
        }
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LETTERS - 1) {
        Some((at, _)) if text.chars().nth(LETTERS).is_some() => {
            format!("{}…", text.get(..at).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(next: &[Option<usize>]) -> Vec<Node> {
        next.iter().map(|next| Node { next: *next, ..Node::default() }).collect()
    }

    fn columns(layout: &Layout) -> Vec<usize> {
        layout.places.iter().map(|place| place.column).collect()
    }

    #[test]
    fn nodes_are_right_of_what_they_point_to() {
        let layout = Layout::new(&nodes(&[None, Some(0), Some(1), Some(0), None]));
        assert_eq!(columns(&layout), [0, 1, 2, 1, 0]);
        assert!(layout.closing.is_empty());
        // The first in a row with its holder, every other one has its own.
        let rows: Vec<f64> =
            layout.places.iter().map(|place| (place.y - MARGIN) / (HEIGHT + BELOW)).collect();
        assert_eq!(rows, [0.0, 0.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_cycle_is_a_row_that_one_arrow_closes() {
        // 0 -> 1 -> 2 -> 0, and 3 points to 1.
        let layout = Layout::new(&nodes(&[Some(1), Some(2), Some(0), Some(1)]));
        assert_eq!(layout.in_cycle, [true, true, true, false]);
        assert_eq!(layout.closing, [(0, 1)]);
        assert_eq!(columns(&layout), [0, 2, 1, 3]);
        let own = Layout::new(&nodes(&[Some(0)]));
        assert_eq!((own.closing, own.in_cycle), (vec![(0, 0)], vec![true]));
    }

    #[test]
    fn no_two_nodes_are_in_one_place() {
        // Several trees and cycles, from a sequence that repeats.
        let next: Vec<Option<usize>> =
            (0..500_usize).map(|at| (at % 7 != 0).then_some(at * 37 % 500)).collect();
        let layout = Layout::new(&nodes(&next));
        let mut places: Vec<(usize, u64)> =
            layout.places.iter().map(|place| (place.column, place.y as u64)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(layout.places.iter().all(|place| place.y + HEIGHT <= layout.height));
    }

    #[test]
    fn long_chains_and_wrong_indexes_are_drawn() {
        let chain: Vec<Option<usize>> = (0..10_000).map(|at: usize| at.checked_sub(1)).collect();
        assert_eq!(Layout::new(&nodes(&chain)).places[9_999].column, 9_999);
        let wrong = figure(&nodes(&[Some(7)]), "<x>").into_string();
        assert!(wrong.contains("&lt;x&gt;") && !wrong.contains("NaN"));
        figure(&[], "");
    }

    #[test]
    fn texts_are_cut_and_escaped() {
        let node = Node { name: "<".repeat(100), note: "a".repeat(LETTERS), ..Node::default() };
        let svg = drawing(&node, Place { column: 0, y: 0.0 }, false).into_string();
        assert!(svg.contains("…</text>") && svg.contains(&"a".repeat(LETTERS)) && !svg.contains("<<"));
    }
}
