//! Flame graphs: stacks folded by their functions, the outermost at the top.

use std::collections::HashMap;

use maud::{Markup, html};

use crate::number::{count, percent};

/// The share of the whole below which boxes of one caller become one.
const NARROW: f64 = 0.002;
/// Boxes that are drawn. More of them are made fewer by a larger share.
const MOST: usize = 2000;
/// Levels that are drawn.
const DEEPEST: usize = 48;
/// Pixels of a level.
const LEVEL: usize = 19;

/// Stacks folded by their functions.
#[derive(Debug, Default)]
pub struct Folded {
    weight: u64,
    callees: HashMap<String, Folded>,
}

/// A box.
struct Flame {
    name: String,
    left: f64,
    width: f64,
    level: usize,
    weight: u64,
}

impl Folded {
    /// Adds a stack, the outermost function first, that so many have.
    pub fn add<'a>(&mut self, functions: impl IntoIterator<Item = &'a str>, weight: u64) {
        let mut at = self;
        at.weight = at.weight.saturating_add(weight);
        for function in functions.into_iter().take(DEEPEST) {
            if !at.callees.contains_key(function) {
                at.callees.insert(function.to_owned(), Self::default());
            }
            let Some(next) = at.callees.get_mut(function) else { return };
            next.weight = next.weight.saturating_add(weight);
            at = next;
        }
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.weight == 0
    }

    /// Builds the graph for a web page. `noun` is what has the stacks: `task`.
    pub fn figure(&self, noun: &str) -> Markup {
        let flames = self.flames();
        let levels = flames.iter().map(|flame| flame.level + 1).max().unwrap_or(0);
        let whole = self.weight.max(1) as f64;
        html! {
            div.flames style=(format!("height:{}px", levels * LEVEL)) {
                @for flame in &flames {
                    @let share = 100.0 / whole;
                    div.(color(&flame.name)) title=(self.title(flame, noun))
                        style=(format!("left:{:.3}%;width:{:.3}%;top:{}px", flame.left * share, flame.width * share, flame.level * LEVEL))
                    { (flame.name) }
                }
            }
        }
    }

    fn title(&self, flame: &Flame, noun: &str) -> String {
        let plural = if flame.weight == 1 { "" } else { "s" };
        let share = percent(flame.weight, self.weight);
        format!("{}: {} {noun}{plural}, {share}", flame.name, count(flame.weight))
    }

    fn flames(&self) -> Vec<Flame> {
        let mut narrow = NARROW;
        loop {
            let flames = self.lay_out(narrow);
            if flames.len() <= MOST || narrow > 1.0 {
                return flames;
            }
            narrow *= 2.0;
        }
    }

    fn lay_out(&self, narrow: f64) -> Vec<Flame> {
        let mut out = Vec::new();
        let mut pending = vec![(self, "all".to_owned(), 0.0, 0)];
        let least = self.weight as f64 * narrow;
        while let Some((node, name, left, level)) = pending.pop() {
            out.push(Flame { name, left, width: node.weight as f64, level, weight: node.weight });
            let mut callees: Vec<(&String, &Self)> = node.callees.iter().collect();
            callees.sort_by(|a, b| b.1.weight.cmp(&a.1.weight).then(a.0.cmp(b.0)));
            let narrow = callees.iter().position(|(_, callee)| (callee.weight as f64) < least);
            // One that is narrow is as good as a box for the others.
            let (shown, others) = callees.split_at(narrow.unwrap_or(callees.len()));
            let mut at = left;
            for (name, callee) in shown {
                pending.push((callee, (*name).clone(), at, level + 1));
                at += callee.weight as f64;
            }
            let weight = others.iter().fold(0_u64, |sum, (_, callee)| sum.saturating_add(callee.weight));
            if weight > 0 {
                let name = format!("{} others", count(others.len() as u64));
                out.push(Flame { name, left: at, width: weight as f64, level: level + 1, weight });
            }
        }
        out.sort_by(|a, b| a.level.cmp(&b.level).then(a.left.total_cmp(&b.left)));
        out
    }
}

/// One of four shades, always the same for a name.
fn color(name: &str) -> &'static str {
    let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    ["a", "b", "c", "d"].get(sum as usize % 4).copied().unwrap_or("a")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flames(folded: &Folded) -> Vec<(String, f64, f64, usize)> {
        let out = folded.flames();
        out.into_iter().map(|flame| (flame.name, flame.left, flame.width, flame.level)).collect()
    }

    #[test]
    fn callees_lie_below_their_caller() {
        let mut folded = Folded::default();
        folded.add(["entry", "read"], 3);
        folded.add(["entry", "write"], 1);
        folded.add(["fork"], 4);
        let expected = [
            ("all", 0.0, 8.0, 0),
            ("entry", 0.0, 4.0, 1),
            ("fork", 4.0, 4.0, 1),
            ("read", 0.0, 3.0, 2),
            ("write", 3.0, 1.0, 2),
        ];
        assert_eq!(flames(&folded), expected.map(|(name, a, b, c)| (name.to_owned(), a, b, c)));
    }

    #[test]
    fn narrow_boxes_become_one() {
        let mut folded = Folded::default();
        folded.add(["wide"], 1_000_000);
        (0..1000).for_each(|at| folded.add([format!("narrow{at}").as_str()], 1));
        assert_eq!(flames(&folded).len(), 3);
        assert!(folded.figure("task").into_string().contains("1,000 others: 1,000 tasks, 0.1 %"));
    }

    #[test]
    fn deep_stacks_end() {
        let mut folded = Folded::default();
        folded.add(std::iter::repeat_n("<f>", 100_000), 1);
        let figure = folded.figure("task").into_string();
        assert!(figure.contains("&lt;f&gt;: 1 task, 100.0 %") && figure.len() < 20_000);
        let mut wide = Folded::default();
        for at in 0..400 {
            let names: Vec<String> = (0..48).map(|level| format!("{at}-{level}")).collect();
            wide.add(names.iter().map(String::as_str), 1);
        }
        assert!(wide.flames().len() <= MOST);
        assert!(
            Folded::default().is_empty() && !Folded::default().figure("task").into_string().contains("NaN")
        );
    }
}
