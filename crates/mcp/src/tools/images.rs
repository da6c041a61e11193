//! What an image must be before it is queued (DESIGN §6.4).

use crate::tools::arguments::Problem;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::config::Images;
use policy::{Code, Message};
use runtime::service::Image;

/// The types `agent_run` takes.
pub(crate) const MIME_TYPES: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];

/// Where an image stands in the request.
pub(crate) fn path(index: usize) -> String {
    format!("images[{index}]")
}

/// Checks number, types and sizes before any byte is decoded, then that what is left is base64.
pub(crate) fn check(images: &[Image], limits: &Images) -> Result<(), Problem> {
    if images.len() as u64 > u64::from(limits.max_count) {
        let detail = Message::new("mcp.image_count")
            .with("count", images.len())
            .with("limit", limits.max_count);
        // The first image that is one too many.
        return Err(problem(path(limits.max_count as usize), detail));
    }
    let mut total = 0_u64;
    for (index, image) in images.iter().enumerate() {
        if !MIME_TYPES.contains(&image.mime_type.as_str()) {
            let detail = Message::new("mcp.image_mime_type").with("allowed", MIME_TYPES.join(", "));
            return Err(problem(format!("{}.mime_type", path(index)), detail));
        }
        let size = decoded_bytes(&image.data_base64);
        total = total.saturating_add(size);
        if size > limits.max_bytes_each {
            let detail = Message::new("mcp.image_size")
                .with("size", size)
                .with("limit", limits.max_bytes_each);
            return Err(problem(path(index), detail));
        }
        if total > limits.max_total_bytes {
            let detail = Message::new("mcp.image_total")
                .with("size", total)
                .with("limit", limits.max_total_bytes);
            return Err(problem(path(index), detail));
        }
    }
    for (index, image) in images.iter().enumerate() {
        if STANDARD.decode(&image.data_base64).is_err() {
            return Err(problem(
                format!("{}.data_base64", path(index)),
                Message::new("mcp.image_base64"),
            ));
        }
    }
    Ok(())
}

/// Bytes the text stands for, if it is padded base64.
fn decoded_bytes(text: &str) -> u64 {
    let padding = text
        .bytes()
        .rev()
        .take(2)
        .take_while(|byte| *byte == b'=')
        .count() as u64;
    (text.len() as u64).div_ceil(4) * 3 - padding
}

fn problem(field: String, detail: Message) -> Problem {
    Problem {
        code: Code::ImageInvalid,
        field,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Images = Images {
        max_count: 2,
        max_bytes_each: 6,
        max_total_bytes: 9,
    };

    fn image(mime_type: &str, data_base64: &str) -> Image {
        Image {
            mime_type: mime_type.to_owned(),
            data_base64: data_base64.to_owned(),
        }
    }

    fn png(bytes: usize) -> Image {
        image("image/png", &STANDARD.encode(vec![0; bytes]))
    }

    fn refused(images: &[Image], field: &str, id: &str) {
        let problem = check(images, &LIMITS).unwrap_err();
        assert_eq!(
            (problem.code, problem.field.as_str(), problem.detail.id()),
            (Code::ImageInvalid, field, id)
        );
    }

    #[test]
    fn limits_are_inclusive_and_count_decoded_bytes() {
        check(&[png(6), png(3)], &LIMITS).unwrap();
        check(&[png(4), png(5)], &LIMITS).unwrap();
        refused(&[png(1), png(7)], "images[1]", "mcp.image_size");
        refused(&[png(5), png(5)], "images[1]", "mcp.image_total");
        refused(&[png(1), png(1), png(1)], "images[2]", "mcp.image_count");
    }

    #[test]
    fn mcp_run_04_type_and_base64_are_checked() {
        for mime_type in MIME_TYPES {
            check(&[image(mime_type, "AAAA")], &LIMITS).unwrap();
        }
        for mime_type in [
            "image/gif",
            "IMAGE/PNG",
            "image/png ",
            "text/plain",
            "image/svg+xml",
        ] {
            refused(
                &[image(mime_type, "AAAA")],
                "images[0].mime_type",
                "mcp.image_mime_type",
            );
        }
        for data in [
            "====", "AAA", "A", "AA==AA", "AA\nA", "_-_-", "data:img", "あ",
        ] {
            refused(
                &[image("image/png", data)],
                "images[0].data_base64",
                "mcp.image_base64",
            );
        }
    }

    #[test]
    fn the_size_is_exact_for_what_decodes() {
        for bytes in 0..40 {
            assert_eq!(
                decoded_bytes(&STANDARD.encode(vec![7; bytes])),
                bytes as u64
            );
        }
    }
}
