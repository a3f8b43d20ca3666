//! Sizes that Parquet files claim, checked before the Parquet library allocates that much: it takes the word of a page's header.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};

use crate::thrift::{I32, LIST, Reader, STRUCT};

/// Values of a column in a row group, and rows of one. Files of `compact` have 128 Ki rows; those of other programs up to a few million.
pub(crate) const MAX_VALUES: i64 = 1 << 24;
/// Bytes of a page. DuckDB writes up to 100 MB.
const MAX_PAGE: i64 = 128 << 20;
/// Bytes of the header of a page, with its statistics.
const MAX_HEADER: usize = 64 << 10;
/// Bytes of what describes a file.
const MAX_FOOTER: u32 = 64 << 20;

/// What the header of a page claims.
#[derive(Debug, Default)]
struct Page {
    uncompressed: i64,
    compressed: i64,
    /// Of a dictionary or of a column.
    values: i64,
    is_dictionary: bool,
    /// Bytes of the header.
    length: u64,
}

/// Fails if the end of a file claims a schema that it does not have.
///
/// # Errors
/// Fails if the file cannot be read, or has no such end.
pub(crate) fn check_schema(file: &File) -> anyhow::Result<()> {
    let size = file.metadata()?.len();
    let mut end = [0; 8];
    file.read_exact_at(&mut end, size.checked_sub(8).context("it is too short")?)?;
    let [a, b, c, d, magic @ ..] = end;
    ensure!(&magic == b"PAR1", "it is not a Parquet file");
    let length = u32::from_le_bytes([a, b, c, d]);
    ensure!(length <= MAX_FOOTER, "its description takes more than {} MiB", MAX_FOOTER >> 20);
    let start = (size - 8).checked_sub(length.into()).context("its description is longer than the file")?;
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start)?;
    ensure!(is_schema(&bytes).is_some(), "its description is damaged");
    Ok(())
}

/// Reads what describes a file (FileMetaData). `None` if an element of the schema has more children than there are elements.
fn is_schema(bytes: &[u8]) -> Option<()> {
    Reader(bytes).fields(&mut |number, kind, reader| {
        if (number, kind) != (2, LIST) {
            return Some(false);
        }
        let (count, kind) = reader.list()?;
        for _ in 0..count {
            if kind != STRUCT {
                return None;
            }
            reader.fields(&mut |number, kind, reader| {
                if (number, kind) != (5, I32) {
                    return Some(false);
                }
                let children = usize::try_from(reader.number()?).ok()?;
                (children <= count).then_some(true)
            })?;
        }
        Some(true)
    })
}

/// Checks the pages of a column.
///
/// # Errors
/// Fails if the file cannot be read, or a page claims more than files have.
pub(crate) fn check_pages(file: &File, start: u64, size: u64) -> anyhow::Result<()> {
    let end = start.checked_add(size).filter(|end| file.metadata().is_ok_and(|file| *end <= file.len()));
    let end = end.context("a column ends after the file")?;
    let (mut at, mut values) = (start, 0_i64);
    let mut bytes = vec![0; MAX_HEADER];
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(MAX_HEADER).min(MAX_HEADER);
        let Some(window) = bytes.get_mut(..count) else { bail!("no page") };
        file.read_exact_at(window, at)?;
        let page = page(window).context("the header of a page is damaged")?;
        let is_size = |size: i64| (0..=MAX_PAGE).contains(&size);
        ensure!(
            is_size(page.uncompressed) && is_size(page.compressed),
            "a page takes more than {} MiB",
            MAX_PAGE >> 20
        );
        // Each value of a dictionary takes four bytes or more.
        let most = if page.is_dictionary { page.uncompressed / 4 } else { MAX_VALUES };
        ensure!((0..=most).contains(&page.values), "a page has more values than bytes");
        values += page.values;
        ensure!(values <= 2 * MAX_VALUES, "a column has more than {MAX_VALUES} values in a row group");
        at = at.saturating_add(page.length).saturating_add(page.compressed.cast_unsigned());
    }
    Ok(())
}

/// Reads the header of a page (PageHeader).
fn page(bytes: &[u8]) -> Option<Page> {
    let mut page = Page::default();
    let mut reader = Reader(bytes);
    reader.fields(&mut |number, kind, reader| {
        match (number, kind) {
            (2, I32) => page.uncompressed = reader.number()?,
            (3, I32) => page.compressed = reader.number()?,
            // Data, dictionary, data of version 2: the first field is the number of values.
            (5 | 7 | 8, STRUCT) => {
                page.is_dictionary |= number == 7;
                reader.fields(&mut |number, kind, reader| {
                    if (number, kind) != (1, I32) {
                        return Some(false);
                    }
                    page.values = page.values.max(reader.number()?);
                    Some(true)
                })?;
            }
            _ => return Some(false),
        }
        Some(true)
    })?;
    page.length = (bytes.len() - reader.0.len()) as u64;
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header: type, sizes, and the number of values of a page of this kind.
    fn header(kind: u8, uncompressed: i64, compressed: i64, values: i64) -> Vec<u8> {
        let number = |value: i64| {
            let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
            let mut bytes = Vec::new();
            while value > 0x7f {
                bytes.push(0x80 | (value & 0x7f) as u8);
                value >>= 7;
            }
            bytes.push(value as u8);
            bytes
        };
        let mut bytes = vec![0x15, 0, 0x15];
        bytes.extend(number(uncompressed));
        bytes.push(0x15);
        bytes.extend(number(compressed));
        bytes.extend([((kind - 3) << 4) | STRUCT, 0x15]);
        bytes.extend(number(values));
        bytes.extend([0, 0]);
        bytes
    }

    fn check(pages: &[Vec<u8>]) -> anyhow::Result<()> {
        let file = tempfile::tempfile()?;
        let bytes = pages.concat();
        file.write_all_at(&bytes, 0)?;
        check_pages(&file, 0, bytes.len() as u64)
    }

    #[test]
    fn pages_that_claim_more_than_they_have_are_refused() {
        let body = |header: Vec<u8>| [header, vec![7; 10]].concat();
        check(&[body(header(7, 40, 10, 10)), body(header(5, 1 << 20, 10, 1 << 20))]).unwrap();
        for (pages, why) in [
            (vec![body(header(5, 1 << 30, 10, 3))], "a page takes more than 128 MiB"),
            (vec![body(header(8, -1, 10, 3))], "a page takes more than 128 MiB"),
            (vec![body(header(7, 40, 10, 1 << 30))], "a page has more values than bytes"),
            (vec![body(header(5, 40, 10, 1 << 30))], "a page has more values than bytes"),
            (vec![body(header(8, 40, 10, 1 << 24)); 3], "a column has more than 16777216 values"),
            (vec![vec![0x18, 0xff, 0xff, 0xff, 0xff, 0x0f]], "the header of a page is damaged"),
        ] {
            let error = check(&pages).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_schema_has_the_children_that_it_claims() {
        // Version 1; a root of one child, and the child.
        let mut bytes = vec![0x15, 2, 0x19, 0x2c, 0x48, 1, b'r', 0x15, 2, 0, 0x48, 1, b'c', 0, 0];
        assert_eq!(is_schema(&bytes), Some(()));
        bytes[8] = 0x70;
        assert_eq!(is_schema(&bytes), None);
    }
}
