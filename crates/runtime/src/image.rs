//! Images are what they claim to be, before anything is queued (MCP-RUN-04, DESIGN §6.4).

use crate::service::Image;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::config::Images;
use policy::{Code, Refusal};

/// Checks count, type, base64 and size, and returns the raw base64 for the model server.
///
/// # Errors
/// `image.invalid` with which image and what is wrong.
pub(crate) fn check(images: &[Image], limits: Images) -> Result<Vec<String>, Refusal> {
    let refuse = |index: usize, detail: String| {
        let rule = "mcp.images";
        Err(
            Refusal::new(Code::ImageInvalid, rule, format!("images[{index}]"))
                .with("detail", detail),
        )
    };
    if images.len() > limits.max_count as usize {
        return refuse(
            limits.max_count as usize,
            format!("at most {} images", limits.max_count),
        );
    }
    let mut total: u64 = 0;
    let mut checked = Vec::with_capacity(images.len());
    for (index, image) in images.iter().enumerate() {
        let Ok(bytes) = STANDARD.decode(&image.data_base64) else {
            return refuse(index, "not base64".into());
        };
        let size = bytes.len() as u64;
        total = total.saturating_add(size);
        if size > limits.max_bytes_each || total > limits.max_total_bytes {
            let detail = format!(
                "{size} bytes; at most {} each, {} together",
                limits.max_bytes_each, limits.max_total_bytes
            );
            return refuse(index, detail);
        }
        match kind(&bytes) {
            Some(kind) if kind == image.mime_type => {}
            Some(kind) => return refuse(index, format!("it is {kind}, not {}", image.mime_type)),
            None => {
                return refuse(
                    index,
                    "image/png, image/jpeg or image/webp is needed".into(),
                );
            }
        }
        checked.push(image.data_base64.clone());
    }
    Ok(checked)
}

fn kind(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Images = Images {
        max_count: 2,
        max_bytes_each: 16,
        max_total_bytes: 24,
    };

    fn image(mime_type: &str, bytes: &[u8]) -> Image {
        Image {
            mime_type: mime_type.into(),
            data_base64: STANDARD.encode(bytes),
        }
    }

    #[track_caller]
    fn refused(images: &[Image], words: &str) {
        let refusal = check(images, LIMITS).unwrap_err();
        assert_eq!(refusal.code, Code::ImageInvalid);
        assert!(
            refusal.detail.iter().any(|(_, text)| text.contains(words)),
            "{refusal:?}"
        );
    }

    #[test]
    fn oll_09_images_are_what_they_claim() {
        let png = image("image/png", b"\x89PNG\r\n\x1a\n1234");
        assert_eq!(
            check(std::slice::from_ref(&png), LIMITS),
            Ok(vec![png.data_base64.clone()])
        );
        refused(
            &[image("image/jpeg", b"\x89PNG\r\n\x1a\n")],
            "it is image/png",
        );
        refused(&[image("image/gif", b"GIF89a")], "is needed");
        refused(
            &[Image {
                mime_type: "image/png".into(),
                data_base64: "data:,x".into(),
            }],
            "not base64",
        );
        refused(&[image("image/png", &[b'x'; 17])], "17 bytes");
        refused(&[png.clone(), png.clone(), png.clone()], "at most 2");
        let big = image("image/png", b"\x89PNG\r\n\x1a\n12345678");
        refused(&[big.clone(), big], "24 together");
    }
}
