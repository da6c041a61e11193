//! Language tags (I18N-04): well-formed as BCP 47 (RFC 5646), compared without case, looked up by cutting from the end
//! (RFC 4647 §3.4).

/// A tag in its usual spelling: `zh-Hans-CN`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(String);

impl Tag {
    /// The tag of a text, if it is well-formed: a language of two or three letters, then any script, region, variants and
    /// extensions of one to eight letters and digits each.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let language = parts.next()?;
        let good = (2..=3).contains(&language.len())
            && language.chars().all(|c| c.is_ascii_alphabetic())
            && text.len() <= MAX_LENGTH
            && parts.all(|part| {
                (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric())
            })
            // A single letter announces what follows it.
            && text.rsplit('-').next().is_some_and(|last| last.len() > 1);
        good.then(|| Self(usual(text)))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag, then what is left when its last part goes: `zh-Hans-CN`, `zh-Hans`, `zh`.
    pub fn chain(&self) -> impl Iterator<Item = Tag> + '_ {
        std::iter::successors(Some(self.clone()), |tag| {
            let mut cut = tag.0.rsplit_once('-')?.0;
            if let Some((before, single)) = cut.rsplit_once('-')
                && single.len() == 1
            {
                cut = before;
            }
            Some(Self(cut.to_owned()))
        })
    }
}

/// Longest tag, bytes (RFC 5646 §4.4.1).
const MAX_LENGTH: usize = 35;

/// Language in small letters, a script with a capital, a region in capitals (RFC 5646 §2.1.1).
fn usual(text: &str) -> String {
    let mut after_single = false;
    let parts: Vec<String> = text
        .split('-')
        .enumerate()
        .map(|(at, part)| {
            let small = part.to_ascii_lowercase();
            let spelled = match part.len() {
                2 if at > 0 && !after_single => part.to_ascii_uppercase(),
                4 if at > 0 && !after_single && small.is_char_boundary(1) => {
                    small[..1].to_ascii_uppercase() + &small[1..]
                }
                _ => small,
            };
            after_single |= part.len() == 1;
            spelled
        })
        .collect();
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I18N-04: BCP 47, without case.
    #[test]
    fn i18n_04_tags() {
        let check = |text: &str, usual: Option<&str>| {
            let tag = Tag::parse(text);
            assert_eq!(tag.as_ref().map(Tag::as_str), usual, "{text}");
        };
        check("zh-cn", Some("zh-CN"));
        check("ZH-hans-cn", Some("zh-Hans-CN"));
        check("de-1996", Some("de-1996"));
        check("en-u-ca-gregory", Some("en-u-ca-gregory"));
        for wrong in [
            "", "e", "english", "zh_CN", "zh-", "-CN", "日本", "en-x", "../en", "en us",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn i18n_10_a_tag_falls_back_to_what_it_begins_with() {
        let chain = |text: &str| {
            let tag = Tag::parse(text).unwrap();
            tag.chain().map(|tag| tag.0).collect::<Vec<_>>()
        };
        assert_eq!(chain("zh-Hans-CN"), ["zh-Hans-CN", "zh-Hans", "zh"]);
        assert_eq!(
            chain("en-u-ca-gregory"),
            ["en-u-ca-gregory", "en-u-ca", "en"]
        );
        assert_eq!(chain("ja"), ["ja"]);
    }
}
