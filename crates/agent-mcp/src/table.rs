//! Tables for a terminal: columns are aligned by what is seen, so that Japanese and emoji keep their line.
//!
//! Nothing is cut or wrapped unless the caller asks for it, because what is printed is also copied.

use crate::terminal::one_visible_line;
use unicode_width::UnicodeWidthStr;

/// Cells of a terminal that this text takes: 2 for East Asian wide characters and emoji, 0 for combining ones.
pub fn display_width(text: &str) -> usize {
    text.width()
}

/// How a cell looks where colour is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    #[default]
    Plain,
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
    /// Fine, narrower.
    Green,
    /// Worth a look.
    Yellow,
    /// Wrong, wider.
    Red,
}

impl Style {
    /// The text in this style; the text itself must be visible already.
    pub fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
        };
        if !colour || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// One cell: one line, whose control characters are shown and not obeyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// With a style.
    pub fn styled(text: &str, style: Style) -> Self {
        Self {
            text: one_visible_line(text),
            style,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::styled(text, Style::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// What happens to a last column that is wider than the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Overflow {
    /// The terminal decides.
    #[default]
    Keep,
    /// It goes on below, in its own column.
    Wrap,
    /// It ends with `…`.
    Cut,
}

/// Narrowest last column that is wrapped or cut; in less the terminal decides.
const NARROWEST: usize = 20;
/// Between two columns.
const GAP: usize = 2;

/// Rows of cells. A row may have fewer cells than another.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
    overflow: Overflow,
}

impl Table {
    /// An empty one, whose last column is as long as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last column goes on in the next line where the terminal ends.
    #[must_use]
    pub fn wrapping(mut self) -> Self {
        self.overflow = Overflow::Wrap;
        self
    }

    /// The last column ends with `…` where the terminal ends.
    #[must_use]
    pub fn cutting(mut self) -> Self {
        self.overflow = Overflow::Cut;
        self
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a row of headings.
    pub fn heading<'t>(&mut self, cells: impl IntoIterator<Item = &'t str>) {
        self.row(
            cells
                .into_iter()
                .map(|text| Cell::styled(text, Style::Bold)),
        );
    }

    /// The lines, safe for a terminal. `width`: cells of the terminal, if there is one.
    pub fn lines(&self, width: Option<usize>, colour: bool) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns.saturating_sub(1))
            .map(|column| {
                let of = |row: &Vec<Cell>| row.get(column).map_or(0, |c| display_width(&c.text));
                self.rows.iter().map(of).max().unwrap_or_default()
            })
            .collect();
        let indent: usize = widths.iter().map(|width| width + GAP).sum();
        let room = width
            .and_then(|width| width.checked_sub(indent))
            .filter(|room| *room >= NARROWEST);
        let mut lines = Vec::new();
        for row in &self.rows {
            let mut line = String::new();
            let mut below = Vec::new();
            for (column, cell) in row.iter().enumerate() {
                let Some(width) = widths.get(column) else {
                    let mut pieces = self.fit(&cell.text, room).into_iter();
                    let first = pieces.next().unwrap_or_default();
                    line.push_str(&cell.style.paint(&first, colour));
                    below = pieces.map(|piece| (piece, cell.style)).collect();
                    break;
                };
                line.push_str(&cell.style.paint(&cell.text, colour));
                let rest = width + GAP - display_width(&cell.text);
                line.extend(std::iter::repeat_n(' ', rest));
            }
            lines.push(line.trim_end().to_owned());
            for (piece, style) in below {
                let piece = style.paint(&piece, colour);
                lines.push(format!("{}{piece}", " ".repeat(indent)));
            }
        }
        lines
    }

    fn fit(&self, text: &str, room: Option<usize>) -> Vec<String> {
        match (self.overflow, room) {
            (Overflow::Wrap, Some(room)) => wrapped(text, room),
            (Overflow::Cut, Some(room)) => vec![cut(text, room)],
            _ => vec![text.to_owned()],
        }
    }
}

/// What cannot be separated: a character with what combines with it.
fn clusters(text: &str) -> Vec<&str> {
    const JOINER: char = '\u{200d}';
    let mut starts = Vec::new();
    let mut previous = None;
    for (at, c) in text.char_indices() {
        let joined = previous == Some(JOINER) || c.to_string().width() == 0;
        if previous.is_none() || !joined {
            starts.push(at);
        }
        previous = Some(c);
    }
    let ends = starts.iter().copied().skip(1).chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &text[*start..end])
        .collect()
}

/// At most `room` cells, the last of them `…` where something is left out.
pub fn cut(text: &str, room: usize) -> String {
    if display_width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    for cluster in clusters(text) {
        if display_width(&out) + display_width(cluster) + 1 > room {
            break;
        }
        out.push_str(cluster);
    }
    out.push('…');
    out
}

/// What does not begin a line in Japanese and Chinese.
const NEVER_FIRST: &str =
    "、。，．,.:;!?！？：；）」』】〉》”’)]}ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々…";

/// Lines of at most `room` cells: broken at a space where there is one, else between two wide characters, else anywhere.
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while display_width(rest) > room {
        let (end, next) = break_of(rest, room);
        lines.push(rest[..end].trim_end().to_owned());
        rest = rest[next..].trim_start();
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

/// Where the line ends and where the next one begins, bytes; the text is wider than the room.
fn break_of(text: &str, room: usize) -> (usize, usize) {
    let (mut at, mut width, mut hard) = (0, 0, 0);
    let mut soft = None;
    let mut previous = "";
    for cluster in clusters(text) {
        let cells = display_width(cluster);
        let first = |set: &str| cluster.chars().next().is_some_and(|c| set.contains(c));
        if at > 0 && (cluster == " " || (wide(previous) || wide(cluster)) && !first(NEVER_FIRST)) {
            soft = Some(at);
        }
        if width + cells > room {
            break;
        }
        at += cluster.len();
        width += cells;
        hard = at;
        previous = cluster;
    }
    // One cluster is always taken, so that this ends.
    let hard = if hard == 0 {
        clusters(text).first().map_or(text.len(), |c| c.len())
    } else {
        hard
    };
    let end = soft.unwrap_or(hard);
    (end, end)
}

fn wide(cluster: &str) -> bool {
    display_width(cluster) == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> Table {
        let mut table = Table::new();
        for row in rows {
            table.row(*row);
        }
        table
    }

    /// Issue 4: the second column begins in the same cell, whatever the first one is made of.
    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let first = [
            "ok",
            "警告",
            "e\u{301}",
            "👨‍👩‍👧",
            "ｱｲ",
            "a\u{1b}[2Jb",
            "x\ny",
            "\u{202e}",
        ];
        let rows: Vec<[&str; 2]> = first.iter().map(|text| [*text, "|"]).collect();
        let lines = table(&rows).lines(None, false);
        let places: Vec<usize> = lines
            .iter()
            .map(|line| display_width(line.strip_suffix('|').unwrap()))
            .collect();
        assert!(places.iter().all(|place| *place == places[0]), "{lines:?}");
        assert!(
            !lines.concat().chars().any(char::is_control),
            "shown, not obeyed: {lines:?}"
        );
        assert!(lines[5].starts_with("a\\u{1b}[2Jb"), "{lines:?}");
        assert!(lines[6].starts_with("x\\ny"), "{lines:?}");
    }

    #[test]
    fn nothing_is_cut_or_wrapped_unless_asked() {
        let long = "あ".repeat(60);
        let rows = [["a", long.as_str()]];
        assert_eq!(table(&rows).lines(Some(40), false).len(), 1);
        let cut = table(&rows).cutting().lines(Some(40), false);
        assert_eq!((cut.len(), display_width(&cut[0])), (1, 40));
        assert!(cut[0].ends_with('…'));
        let wrapped = table(&rows).wrapping().lines(Some(40), false);
        assert!(wrapped.len() > 1);
        for line in &wrapped {
            assert!(display_width(line) <= 40, "{line}");
        }
        assert!(wrapped[1].starts_with("   あ"), "{wrapped:?}");
        // Where there is no terminal, or next to no room, nothing is.
        for width in [None, Some(10)] {
            assert_eq!(table(&rows).wrapping().lines(width, false).len(), 1);
        }
    }

    #[test]
    fn lines_break_where_a_reader_expects_it() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("一二三。四", 6), ["一二", "三。四"]);
        assert_eq!(wrapped("/a/long/path", 5), ["/a/lo", "ng/pa", "th"]);
        assert_eq!(wrapped("e\u{301}e\u{301}", 1), ["e\u{301}", "e\u{301}"]);
        // A character that is wider than the room does not stop it.
        assert_eq!(wrapped("一二", 1), ["一", "二"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn colour_takes_no_room() {
        let mut coloured = Table::new();
        coloured.row([Cell::styled("警告", Style::Yellow), Cell::from("x")]);
        coloured.row([Cell::styled("ok", Style::Plain), Cell::from("y")]);
        assert_eq!(
            coloured.lines(None, true),
            ["\u{1b}[33m警告\u{1b}[0m  x", "ok    y"]
        );
        assert_eq!(coloured.lines(None, false), ["警告  x", "ok    y"]);
    }
}
