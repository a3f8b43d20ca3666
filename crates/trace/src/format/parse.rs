//! Parses the text of `events/SYSTEM/EVENT/format`.

use super::{EventFormat, Field, FieldKind, Slot};
use crate::error::TraceError;

/// Upper bound of a record's size: the largest sub-buffer, order 7 of 64 KiB pages.
const MAX_RECORD: u32 = 1 << 23;

pub(super) fn parse(system: &str, text: &str) -> Result<EventFormat, TraceError> {
    let mut name = None;
    let mut id = None;
    let mut print = String::new();
    let mut fields = Vec::new();
    let fail = |name: &Option<String>, what: String| TraceError::EventFormat {
        name: format!("{system}/{}", name.as_deref().unwrap_or("?")),
        what,
    };
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("name:") {
            name = Some(rest.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("ID:") {
            let rest = rest.trim();
            id = Some(
                rest.parse()
                    .map_err(|_| fail(&name, format!("expected a number after ID:, found {rest:?}")))?,
            );
        } else if let Some(rest) = line.strip_prefix("print fmt:") {
            rest.trim().clone_into(&mut print);
        } else if line.starts_with("field:") || line.starts_with("field special:") {
            fields.push(field(line).map_err(|what| fail(&name, what))?);
        }
    }
    let Some(event) = name.clone().filter(|name| !name.is_empty()) else {
        return Err(fail(&None, "expected a line `name: EVENT`".into()));
    };
    let Some(id) = id else {
        return Err(fail(&name, "expected a line `ID: NUMBER`".into()));
    };
    let mut format =
        EventFormat { index: 0, system: system.to_owned(), name: event, id, fields, print, common_pid: None };
    format.common_pid = format.slot("common_pid");
    Ok(format)
}

/// Parses a line `field:unsigned long nr_taken; offset:8; size:8; signed:0;` of an event or of `header_page`.
pub(crate) fn field(line: &str) -> Result<Field, String> {
    let mut declaration = None;
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in line.split(';') {
        let Some((key, value)) = part.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let number = || value.parse::<u32>().map_err(|_| format!("{key} is not a number in {line:?}"));
        match key {
            "field" | "field special" => declaration = Some(value),
            "offset" => offset = Some(number()?),
            "size" => size = Some(number()?),
            "signed" => signed = number()? != 0,
            _ => {}
        }
    }
    let (Some(declaration), Some(offset), Some(size)) = (declaration, offset, size) else {
        return Err(format!("expected `field:TYPE NAME; offset:N; size:N;`, found {line:?}"));
    };
    if offset.checked_add(size).is_none_or(|end| end > MAX_RECORD) {
        return Err(format!(
            "a field at offset {offset} of {size} bytes is larger than any record: {line:?}"
        ));
    }
    let (type_name, name, count) = split(declaration).ok_or_else(|| format!("no field name in {line:?}"))?;
    let kind = kind(type_name, count, size, signed);
    Ok(Field { name: name.to_owned(), type_name: type_name.to_owned(), slot: Slot { offset, size, kind } })
}

/// Splits a C declaration into type, name and the text in brackets.
fn split(declaration: &str) -> Option<(&str, &str, Option<&str>)> {
    let (front, brackets) = match declaration.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
        Some((front, count)) => (front.trim_end(), Some(count.trim())),
        None => (declaration, None),
    };
    let start = front.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let (type_name, name) = front.split_at_checked(start)?;
    (!name.is_empty()).then_some((type_name.trim(), name, brackets))
}

fn kind(type_name: &str, count: Option<&str>, size: u32, signed: bool) -> FieldKind {
    if let Some(of) = type_name.strip_prefix("__data_loc") {
        return FieldKind::DataLoc { element: element_size(of) };
    }
    if let Some(of) = type_name.strip_prefix("__rel_loc") {
        return FieldKind::RelLoc { element: element_size(of) };
    }
    let Some(count) = count else { return FieldKind::Integer { signed } };
    if matches!(type_name, "char" | "const char" | "unsigned char") {
        return FieldKind::Chars;
    }
    // The count may be an unevaluated expression; then the type gives the element size.
    let element = match count.parse::<u32>() {
        Ok(count) if count > 0 && size.is_multiple_of(count) => size / count,
        _ => element_size(type_name),
    };
    FieldKind::Array { element, signed }
}

/// Returns the size of a C type on 64-bit machines, 1 if unknown.
fn element_size(type_name: &str) -> u32 {
    let of = type_name.trim().trim_end_matches("[]").trim();
    if of.ends_with('*') {
        return 8;
    }
    match of.trim_start_matches("const ").trim() {
        "u16" | "s16" | "__u16" | "__s16" | "__le16" | "__be16" | "short" | "unsigned short" | "uint16_t" => {
            2
        }
        "u32" | "s32" | "__u32" | "__s32" | "__le32" | "__be32" | "int" | "unsigned int" | "unsigned"
        | "uint32_t" | "gfp_t" | "pid_t" | "dev_t" => 4,
        "u64" | "s64" | "__u64" | "__s64" | "__le64" | "__be64" | "long" | "unsigned long" | "long long"
        | "unsigned long long" | "uint64_t" | "size_t" | "sector_t" => 8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: mm_sample\nID: 640\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \n\
        \tfield:struct shrinker * shr;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc u32[] words;\toffset:36;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long pair[2];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:u8 mac[ETH_ALEN];\toffset:56;\tsize:6;\tsigned:0;\n\
        \n\
        print fmt: \"%s %d\", REC->comm, 3\n";

    #[test]
    fn every_kind_of_field_is_understood() {
        let format = parse("vmscan", FORMAT).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.system.as_str()), ("mm_sample", 640, "vmscan"));
        assert_eq!(format.print, "\"%s %d\", REC->comm, 3");
        let slot = |name| format.slot(name).unwrap();
        assert_eq!(
            slot("common_pid"),
            Slot { offset: 4, size: 4, kind: FieldKind::Integer { signed: true } }
        );
        assert_eq!(slot("shr"), Slot { offset: 8, size: 8, kind: FieldKind::Integer { signed: false } });
        assert_eq!(slot("comm").kind, FieldKind::Chars);
        assert_eq!(slot("name").kind, FieldKind::DataLoc { element: 1 });
        assert_eq!(slot("words").kind, FieldKind::RelLoc { element: 4 });
        assert_eq!(slot("pair").kind, FieldKind::Array { element: 8, signed: false });
        assert_eq!(slot("mac").kind, FieldKind::Array { element: 1, signed: false });
        assert_eq!(format.any_slot(&["missing", "pair"]), format.slot("pair"));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let message = |text: &str| parse("vmscan", text).unwrap_err().to_string();
        assert!(message("ID: 3\n").contains("expected a line `name: EVENT`"));
        assert!(message("name: x\n").contains("expected a line `ID: NUMBER`"));
        assert!(message("name: x\nID: y\n").contains("expected a number after ID:"));
        assert!(
            message("name: x\nID: 1\nfield:int a; offset:4294967295; size:8;")
                .contains("larger than any record")
        );
        assert!(message("name: x\nID: 1\nfield:int a; offset:4;").contains("vmscan/x"));
    }
}
