//! Answers of object stores, which are XML documents.

use roxmltree::{Document, Node, ParsingOptions};

/// Nodes of a document: a page of a list of parts has some 20,000.
const MAX_NODES: u32 = 1 << 17;
/// Levels of elements: answers have four.
const MAX_LEVELS: usize = 16;

/// An element, without attributes and namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    /// Its text, if it has no elements.
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// Parses a whole document. Returns `None` if it is not one, or ends early.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        // Stores send white space while they work.
        let text = std::str::from_utf8(bytes).ok()?.trim_ascii();
        let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        Self::of(Document::parse_with_options(text, options).ok()?.root_element(), MAX_LEVELS)
    }

    fn of(node: Node<'_, '_>, levels: usize) -> Option<Self> {
        let children = node.children().filter(Node::is_element);
        Some(Self {
            name: node.tag_name().name().to_owned(),
            text: node.text().unwrap_or_default().to_owned(),
            children: children.map(|child| Self::of(child, levels.checked_sub(1)?)).collect::<Option<_>>()?,
        })
    }

    /// Returns its elements of this name, in order.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the text of its first element of this name, unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next().map(|child| child.text.as_str()).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_are_found() {
        let xml = b"\n <?xml version=\"1.0\"?> <A xmlns=\"x\"><P><K n='1'>a&amp;b</K></P><!-- --><P><K>&#34;c&#34;</K><K/></P></A>";
        let document = Element::parse(xml).unwrap();
        assert_eq!(document.name, "A");
        assert_eq!(document.all("P").filter_map(|part| part.text("K")).collect::<Vec<_>>(), ["a&b", "\"c\""]);
        assert_eq!(document.text("P"), None);
        assert_eq!(document.text("K"), None);
    }

    #[test]
    fn what_is_not_a_whole_document_is_none() {
        let xml = "<A><B>text</B></A>";
        for end in 0..xml.len() {
            assert_eq!(Element::parse(&xml.as_bytes()[..end]), None, "{end}");
        }
        let deep = "<A>".repeat(1 << 16) + &"</A>".repeat(1 << 16);
        let entities = "<!DOCTYPE A [<!ENTITY x \"<B/><B/>\">]><A>&x;</A>";
        for other in ["", "<html><p></html>", "{}", &deep, entities, "<A/><B/>"] {
            assert_eq!(Element::parse(other.as_bytes()), None, "{}", &other[..other.len().min(20)]);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(<[/AK]{1,2}>|&|quot;|x){0,30}") {
            if let Some(document) = Element::parse(text.as_bytes()) {
                let _ = document.all("A").filter_map(|part| part.text("K")).count();
            }
        }
    }
}
