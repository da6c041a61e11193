//! The known word nearest to a mistyped one.

/// Longer words are not compared: no key is that long, and the cost grows with the square.
const MAX_LENGTH: usize = 64;

/// The candidate with the fewest edits, if they are few for its length: 1 up to 4 letters, else a third.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_LENGTH {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.chars().count() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y))
                .min(above[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && *x == b[j - 1] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn edits_are_counted() {
        let check = |a, b, edits| assert_eq!(distance(a, b), edits, "{a} {b}");
        check("", "abc", 3);
        check("acess", "access", 1);
        check("netwrok", "network", 1);
        check("host", "port", 2);
    }

    #[test]
    fn far_words_are_not_offered() {
        let known = ["access", "local_endpoints", "host"];
        assert_eq!(nearest("Acces", known.into_iter()), Some("access"));
        assert_eq!(
            nearest("local_endpoint", known.into_iter()),
            Some("local_endpoints")
        );
        assert_eq!(nearest("zzz", known.into_iter()), None);
        assert_eq!(nearest(&"a".repeat(5000), known.into_iter()), None);
    }
}
