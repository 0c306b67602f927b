//! The rules about names, offsets and buffers that both disks assert.

use duramen_types::BLOCK_SIZE;

/// Asserts that a read or write of `buf` at `offset` obeys the rules of direct I/O.
pub(crate) fn assert_aligned(buf: &[u8], offset: u64) {
    assert!(buf.len().is_multiple_of(BLOCK_SIZE), "length {} is not a multiple of {BLOCK_SIZE}", buf.len());
    assert!(offset.is_multiple_of(BLOCK_SIZE as u64), "offset {offset} is not a multiple of {BLOCK_SIZE}");
    assert!(buf.as_ptr().addr().is_multiple_of(BLOCK_SIZE), "the buffer is not aligned to {BLOCK_SIZE} bytes");
}

/// Asserts the rules for all `parts` of one write and returns their total length.
pub(crate) fn assert_parts_aligned(parts: &[&[u8]], offset: u64) -> usize {
    parts.iter().for_each(|part| assert_aligned(part, offset));
    parts.iter().map(|part| part.len()).sum()
}

/// Asserts that `name` is relative, below the home, and at most one directory deep.
pub(crate) fn assert_name(name: &str) {
    let mut parts = name.split('/');
    let fine = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    assert!(
        parts.next().is_some_and(fine) && parts.next().is_none_or(fine) && parts.next().is_none(),
        "`{name}` is not a name inside the home"
    );
}

/// Asserts that `name` is the home (`""`) or a directory right below it.
pub(crate) fn assert_directory_name(name: &str) {
    assert!(name.is_empty() || !name.contains('/'), "`{name}` is more than one level deep");
    if !name.is_empty() {
        assert_name(name);
    }
}

/// Returns the directory part of a name: `""` for a file in the home itself.
pub(crate) fn directory_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(directory, _)| directory)
}
