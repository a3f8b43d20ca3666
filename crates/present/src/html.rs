//! Web pages in one file: no network, light and dark.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use sha2::{Digest as _, Sha256};

use crate::printable::printable_lines;
use crate::table::{Cell, Table, Tone};

const STYLE: &str = include_str!("page.css");

/// Builds a page. `style` and `script` are added to those that all pages share, and inserted as they are.
pub fn page(title: &str, style: &str, script: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(script));
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                main {
                    (body)
                    footer { "Made by pagehaul " (env!("CARGO_PKG_VERSION")) }
                }
                @if !script.is_empty() { script { (PreEscaped(script)) } }
            }
        }
    };
    // A browser shows no control characters, and marks that reverse text would show names that are not there.
    printable_lines(&page.into_string()).into_owned() + "\n"
}

/// What the page may load and run: nothing but its styles and this script. Text that became markup by mistake could do nothing.
fn policy(script: &str) -> String {
    let script = match script.is_empty() {
        true => "'none'".to_owned(),
        false => format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script))),
    };
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {script}; base-uri 'none'; form-action 'none'"
    )
}

/// Builds a framed part of a page; an empty `about` is omitted.
pub fn section(title: &str, about: &str, body: impl Render) -> Markup {
    framed(None, title, about, body)
}

/// Builds a [`section`] to which links lead by its `id`.
pub fn part(id: &str, title: &str, about: &str, body: impl Render) -> Markup {
    framed(Some(id), title, about, body)
}

fn framed(id: Option<&str>, title: &str, about: &str, body: impl Render) -> Markup {
    html! {
        section id=[id] {
            h2 { (title) }
            @if !about.is_empty() { p.about { (about) } }
            (body)
        }
    }
}

/// Builds a row of parts next to each other, below each other where the page is narrow.
pub fn columns(parts: impl IntoIterator<Item = Markup>) -> Markup {
    html! { div.columns { @for part in parts { (part) } } }
}

/// Builds the figures that come first: each a value and its name.
pub fn tiles(tiles: impl IntoIterator<Item = (Tone, String, String)>) -> Markup {
    html! {
        div.tiles {
            @for (tone, value, name) in tiles {
                div.tile.(tone.class()) { b { (value) } span { (name) } }
            }
        }
    }
}

/// Builds the line of facts below a heading.
pub fn facts(facts: impl IntoIterator<Item = String>) -> Markup {
    html! { div.facts { @for fact in facts { span { (fact) } } } }
}

/// Builds a coloured square, for legends.
pub fn swatch(color: &str) -> Markup {
    html! { i.swatch style=(format!("background:{color}")) {} }
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Soft => "soft",
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }
}

impl Cell {
    fn content(&self) -> Markup {
        let background = self.background.as_ref().map(|color| format!("background:{color}"));
        html! {
            @if let Some(color) = self.swatch { (swatch(color)) }
            @if let Some(background) = background { span.heat style=(background) { (self.text) } }
            @else if let Some(place) = &self.place { a href=(format!("#{place}")) { (self.text) } }
            @else { (self.text) }
        }
    }
}

impl Render for Table {
    fn render(&self) -> Markup {
        let align = |at| if self.is_left(at) { "text" } else { "number" };
        html! {
            div.scroll {
                table {
                    @if !self.header.is_empty() {
                        thead {
                            tr { @for (at, cell) in self.header.iter().enumerate() { th.(align(at)) { (cell.content()) } } }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (at, cell) in row.iter().enumerate() {
                                    td.(align(at)).(cell.tone.class()) title=[&cell.title] { (cell.content()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut table = Table::new(["<b>"]);
        table.row([Cell { title: Some("\"".into()), ..Cell::from("</td>") }]);
        let page = page("</title>", "", "", &section("a & b", "", table));
        let mut link = Table::new([""; 0]);
        link.row([Cell { place: Some("a\"b".into()), ..Cell::from("<i>") }]);
        assert!(link.render().into_string().contains("<a href=\"#a&quot;b\">&lt;i&gt;</a>"));
        for escaped in ["&lt;/title&gt;", "a &amp; b", "&lt;b&gt;", "&lt;/td&gt;", "title=\"&quot;\""] {
            assert!(page.contains(escaped), "{escaped} in {page}");
        }
    }

    #[test]
    fn control_characters_and_marks_that_reverse_text_are_escaped() {
        let mut table = Table::new([""; 0]);
        table.row([Cell::from("\u{1b}[31mexe\u{202e}gpj")]);
        let page = page("\u{7}", "", "", &section("\u{9b}", "two\nlines", table));
        assert!(page.contains("\\u{1b}[31mexe\\u{202e}gpj") && page.contains("two\nlines"), "{page}");
        assert!(!page.contains(['\u{7}', '\u{9b}', '\u{1b}', '\u{202e}']), "{page}");
    }

    #[test]
    fn only_the_script_of_the_page_runs() {
        let none = html! {};
        let without = page("t", "", "", &none);
        assert!(!without.contains("<script") && without.contains("script-src 'none'"), "{without}");
        // printf %s 'let a;' | openssl dgst -sha256 -binary | base64
        let with = page("t", "", "let a;", &none);
        assert!(with.contains("script-src 'sha256-81WALLbUROF1pWdYjuQYKuIcGgY/+TqVJr8UsV6Tkvo='"), "{with}");
    }

    #[test]
    fn pages_need_no_network() {
        for outside in ["http:", "https:", "@import", "url("] {
            assert!(!STYLE.contains(outside), "{outside}");
        }
    }
}
