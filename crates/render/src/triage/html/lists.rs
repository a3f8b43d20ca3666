//! Lists that the script searches, filters and sorts. Without it they are lists.

use maud::{Markup, html};

/// Builds a list with what searches it. `kinds` are the values of `data-kind` that can be chosen, with their names.
pub(super) fn explore(hint: &str, kinds: &[(String, String)], list: Markup) -> Markup {
    html! {
        div.explore {
            div.tools {
                input type="search" placeholder=(hint) aria-label=(hint);
                @for (kind, name) in kinds { button data-only=(kind) aria-pressed="false" { (name) } }
                output {}
            }
            div.list { (list) }
        }
    }
}
