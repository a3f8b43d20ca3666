//! What is needed of XML to read the answers of object stores: they have neither attributes nor nested elements of one name.

/// Returns the text of the first element of this name.
pub(crate) fn element(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).next().map(unescape)
}

/// Returns the contents of all elements of this name, in order.
pub(crate) fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (inside, after) = after.split_once(&close)?;
        rest = after;
        Some(inside)
    })
}

fn unescape(text: &str) -> String {
    let entities =
        [("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_are_found() {
        let xml = "<A><P><K>a&amp;b</K></P><P><K>&#34;c&#34;</K></P></A>";
        assert_eq!(
            elements(xml, "P").filter_map(|part| element(part, "K")).collect::<Vec<_>>(),
            ["a&b", "\"c\""]
        );
        assert_eq!(element("<K>", "K"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(<[/AK]{1,2}>|&|quot;|x){0,30}") {
            let _ = elements(&text, "A").filter_map(|part| element(part, "K")).count();
        }
    }
}
