//! Page images for the log: whole pages without their unused parts.

/// The bytes are not an image of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the bytes are not a page image")]
pub(crate) struct BadImage;

/// A copy of the page without its unused parts.
pub(crate) fn image(page: &[u8]) -> Vec<u8> {
    unimplemented!()
}

/// Restores a page from its image.
pub(crate) fn restore_image(image: &[u8], page: &mut [u8]) -> Result<(), BadImage> {
    unimplemented!()
}
