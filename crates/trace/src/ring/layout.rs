use crate::abi::Abi;
use crate::error::TraceError;
use crate::format::parse_field;

/// Layout of a sub-buffer, from `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubBufferLayout {
    /// Byte order and word size of the machine.
    pub abi: Abi,
    /// Byte offset of `commit`: the number of data bytes, with flags in its upper bits.
    pub commit_offset: u32,
    /// Byte offset of the data.
    pub data_offset: u32,
    /// Size of the sub-buffer in bytes.
    pub sub_buffer_size: u32,
}

/// Size of the largest sub-buffer: the kernel allows order 7 of its largest page.
pub(crate) const MAX_SUB_BUFFER: u32 = 1 << 23;

impl SubBufferLayout {
    /// Parses `events/header_page`. The size of `commit`, a `local_t`, is that of the machine's `long`.
    ///
    /// # Errors
    /// [`TraceError::EventFormat`] if `timestamp`, `commit` or `data` is missing or invalid.
    pub fn parse(text: &str, big_endian: bool) -> Result<Self, TraceError> {
        let fail = |what: String| TraceError::EventFormat { name: "header_page".into(), what };
        let (mut timestamp, mut commit, mut data) = (None, None, None);
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("field:")) {
            let field = parse_field(line).map_err(fail)?;
            match field.name.as_str() {
                "timestamp" => timestamp = Some(field.slot),
                "commit" => commit = Some(field.slot),
                "data" => data = Some(field.slot),
                _ => {}
            }
        }
        let (Some(timestamp), Some(commit), Some(data)) = (timestamp, commit, data) else {
            return Err(fail("expected the fields timestamp, commit and data".into()));
        };
        let sub_buffer_size = data.offset.checked_add(data.size).filter(|&size| size <= MAX_SUB_BUFFER);
        let fits = timestamp.offset == 0 && timestamp.size == 8 && commit.offset >= 8;
        let (4 | 8, true, Some(sub_buffer_size)) =
            (commit.size, fits && commit.offset + commit.size <= data.offset, sub_buffer_size)
        else {
            return Err(fail(format!(
                "expected 8 bytes of timestamp, 4 or 8 of commit, then data; found {timestamp:?}, {commit:?}, {data:?}"
            )));
        };
        Ok(Self {
            abi: Abi { big_endian, long_size: commit.size as u8 },
            commit_offset: commit.offset,
            data_offset: data.offset,
            sub_buffer_size,
        })
    }

    /// Returns the layout of 64-bit little-endian kernels with sub-buffers of `size` bytes.
    #[cfg(test)]
    pub(crate) fn le64(sub_buffer_size: u32) -> Self {
        let abi = Abi { big_endian: false, long_size: 8 };
        Self { abi, commit_offset: 8, data_offset: 16, sub_buffer_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_follow_the_header() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(SubBufferLayout::parse(text, false).unwrap(), SubBufferLayout::le64(4096));
        let narrow = text
            .replace("offset:8;\tsize:8", "offset:8;\tsize:4")
            .replace("offset:16;\tsize:4080", "offset:12;\tsize:4084");
        let layout = SubBufferLayout::parse(&narrow, true).unwrap();
        assert_eq!((layout.abi.long_size, layout.abi.big_endian, layout.sub_buffer_size), (4, true, 4096));
        assert!(SubBufferLayout::parse(&text.replace("size:4080", "size:4294967295"), false).is_err());
        assert!(SubBufferLayout::parse("", false).unwrap_err().to_string().contains("header_page"));
    }
}
