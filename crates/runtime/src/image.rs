//! Images are what they claim to be, before anything is queued (MCP-RUN-04, DESIGN §6.4).

use crate::service::Image;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::config::Images;
use policy::{Code, Message, Refusal};

/// Checks count, type, base64 and size, and returns the raw base64 for the model server.
///
/// # Errors
/// `image.invalid` with which image and what is wrong.
pub(crate) fn check(images: &[Image], limits: Images) -> Result<Vec<String>, Refusal> {
    let refuse = |index: usize, why: Message| {
        let rule = "mcp.images";
        Err(Refusal::new(Code::ImageInvalid, rule, format!("images[{index}]")).because(why))
    };
    if images.len() > limits.max_count as usize {
        return refuse(
            limits.max_count as usize,
            Message::new("reason.too_many_images").with("limit", limits.max_count),
        );
    }
    let mut total: u64 = 0;
    let mut checked = Vec::with_capacity(images.len());
    for (index, image) in images.iter().enumerate() {
        let Ok(bytes) = STANDARD.decode(&image.data_base64) else {
            return refuse(index, Message::new("mcp.image_base64"));
        };
        let size = bytes.len() as u64;
        total = total.saturating_add(size);
        if size > limits.max_bytes_each || total > limits.max_total_bytes {
            let why = Message::new("reason.image_size")
                .with("size", size)
                .with("each", limits.max_bytes_each)
                .with("total", limits.max_total_bytes);
            return refuse(index, why);
        }
        match kind(&bytes) {
            Some(kind) if kind == image.mime_type => {}
            Some(kind) => {
                let why = Message::new("reason.image_kind")
                    .with("found", kind)
                    .with("named", &image.mime_type);
                return refuse(index, why);
            }
            None => return refuse(index, Message::new("reason.no_image")),
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
        let reason = refusal.reason.unwrap().to_string();
        assert!(reason.contains(words), "{reason}");
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
            "found=image/png",
        );
        refused(&[image("image/gif", b"GIF89a")], "reason.no_image");
        refused(
            &[Image {
                mime_type: "image/png".into(),
                data_base64: "data:,x".into(),
            }],
            "mcp.image_base64",
        );
        refused(&[image("image/png", &[b'x'; 17])], "size=17");
        refused(&[png.clone(), png.clone(), png.clone()], "limit=2");
        let big = image("image/png", b"\x89PNG\r\n\x1a\n12345678");
        refused(&[big.clone(), big], "total=24");
    }
}
