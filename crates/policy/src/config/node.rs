//! YAML as a tree in which every key and value knows where it stands.

use super::finding::FindingCode;
use super::report::{Details, Report};
use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, StructureStyle};
use std::collections::HashMap;

/// Weight of one file with its aliases expanded: a node weighs 1, and 1 more for every 64 bytes of text. A full file of
/// [`super::MAX_FILE_BYTES`] of text fits, an alias bomb does not.
const MAX_WEIGHT: usize = 50_000;
/// Maps and lists within each other.
const MAX_DEPTH: usize = 32;

/// A position: index of the source, line and column from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) source: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Mark {
    fn at(source: usize, marker: Marker) -> Self {
        Self {
            source,
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }

    /// The first character of a source.
    pub(super) fn start(source: usize) -> Self {
        Self {
            source,
            line: 1,
            column: 1,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) mark: Mark,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// `plain`: written without quotes, so it can be a number, true, false or null.
    Scalar { text: String, plain: bool },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file, without duplicates.
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) mark: Mark,
    pub(super) value: Node,
}

impl Node {
    /// YAML 1.2 core schema: nothing, `~`, `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// How the value is shown in a message: short, on one line.
    pub(super) fn shown(&self) -> String {
        match &self.content {
            Content::Scalar { text, .. } => shorten(text),
            Content::List(_) => "[…]".to_owned(),
            Content::Map(_) => "{…}".to_owned(),
        }
    }

    fn weight(&self) -> usize {
        match &self.content {
            Content::Scalar { text, .. } => 1 + text.len() / 64,
            Content::List(items) => 1 + items.iter().map(Self::weight).sum::<usize>(),
            Content::Map(entries) => {
                let entry = |entry: &Entry| 1 + entry.key.len() / 64 + entry.value.weight();
                1 + entries.iter().map(entry).sum::<usize>()
            }
        }
    }

    fn depth(&self) -> usize {
        match &self.content {
            Content::Scalar { .. } => 0,
            Content::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Content::Map(entries) => 1 + entries.iter().map(|e| e.value.depth()).max().unwrap_or(0),
        }
    }
}

/// At most 60 characters; control characters and those that change the direction of text are replaced.
pub(super) fn shorten(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(60)
        .map(|c| match c {
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// The file gives no tree; why is in the report.
pub(super) struct NotYaml;

/// The tree of one source, or `None` where nothing is written; what is wrong goes to the report.
pub(super) fn parse(
    bytes: &[u8],
    source: usize,
    report: &mut Report<'_>,
) -> Result<Option<Node>, NotYaml> {
    if bytes.len() > super::MAX_FILE_BYTES {
        // The caller stops reading there, so nobody knows how many more there are.
        let details = Details::allowed(format!("..{}", super::MAX_FILE_BYTES));
        report.add(FindingCode::TooLarge, Mark::start(source), "", details);
        return Err(NotYaml);
    }
    let text = match super::encoding::text(bytes) {
        Ok(text) => text,
        Err(wrong) => {
            let mark = end_of(&String::from_utf8_lossy(wrong.before), source);
            report.add(wrong.code, mark, "", Details::value(wrong.name));
            return Err(NotYaml);
        }
    };
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut tree = Tree {
        open: Vec::new(),
        anchors: HashMap::new(),
        weight: 0,
        root: None,
        documents: 0,
    };
    let lines: Vec<&str> = text.lines().collect();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                syntax(&error, &lines, source, report);
                return Err(NotYaml);
            }
        };
        let mark = Mark::at(source, span.start);
        if event.tag().is_some() {
            let mark = span.tag_start().map_or(mark, |tag| Mark::at(source, tag));
            report.add(FindingCode::Tag, mark, &tree.path(), Details::default());
            return Err(NotYaml);
        }
        if !tree.in_flow()
            && matches!(
                &event,
                Event::Scalar(..)
                    | Event::MappingStart(..)
                    | Event::SequenceStart(..)
                    | Event::Alias(_)
            )
            && let Some(column) = lines
                .get(mark.line - 1)
                .and_then(|line| tab_before(line, mark.column))
        {
            // The parser would take it, but two editors would show two different nestings.
            report.add(
                FindingCode::Tab,
                Mark { column, ..mark },
                "",
                Details::default(),
            );
            return Err(NotYaml);
        }
        if let Err((code, mark, key)) = tree.take(event, mark, report) {
            report.add(code, mark, &key, Details::default());
            return Err(NotYaml);
        }
    }
    Ok(tree.root.filter(|root| !root.is_null()))
}

/// The place behind a text. YAML ends a line with LF, CR LF, or CR alone.
fn end_of(text: &str, source: usize) -> Mark {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n");
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    Mark {
        source,
        line: text.matches(['\n', '\r']).count() + 1,
        column: last.chars().count() + 1,
    }
}

/// The column of a tab in the indentation of what starts at `column`.
fn tab_before(line: &str, column: usize) -> Option<usize> {
    let mut indent = line.chars().take(column - 1);
    indent
        .clone()
        .all(char::is_whitespace)
        .then(|| indent.position(|c| c == '\t'))?
        .map(|position| position + 1)
}

fn syntax(error: &ScanError, lines: &[&str], source: usize, report: &mut Report<'_>) {
    let mut mark = Mark::at(source, *error.marker());
    // A tab in the indentation is what people do not see: looked for in the line of the error and in the one after it,
    // because a tabbed line can be read as the rest of the value before it.
    let tab = (mark.line..=mark.line + 1).find_map(|line| {
        let text = lines.get(line - 1)?;
        let indent = text.chars().take_while(|c| c.is_whitespace()).count();
        Some((line, tab_before(text, indent + 1)?))
    });
    let code = match (error.kind(), tab) {
        (ErrorKind::RecursionLimitExceeded, _) => FindingCode::TooComplex,
        (_, Some((line, column))) => {
            (mark.line, mark.column) = (line, column);
            FindingCode::Tab
        }
        (ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation, None)
        | (ErrorKind::TabInIndentation | ErrorKind::TabAtBlockScalarStart, None) => {
            FindingCode::Tab
        }
        _ => FindingCode::Syntax,
    };
    report.add(code, mark, "", Details::detail(error.info()));
}

type Refused = (FindingCode, Mark, String);

struct Tree {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    weight: usize,
    root: Option<Node>,
    documents: usize,
}

struct Open {
    mark: Mark,
    flow: bool,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        seen: HashMap<String, usize>,
        key: Option<(String, Mark)>,
    },
}

impl Tree {
    fn take(
        &mut self,
        event: Event<'_>,
        mark: Mark,
        report: &mut Report<'_>,
    ) -> Result<(), Refused> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((FindingCode::ManyDocuments, mark, String::new()));
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                };
                let node = Node { mark, content };
                self.count(node.weight(), 0, mark)?;
                self.place(node, anchor, report)?;
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    // An anchor that is still open: the node would contain itself.
                    return Err((FindingCode::TooComplex, mark, self.path()));
                };
                let node = Node {
                    mark,
                    content: node.content.clone(),
                };
                self.count(node.weight(), node.depth(), mark)?;
                self.place(node, 0, report)?;
            }
            Event::SequenceStart(style, anchor, _) => {
                self.start(mark, style, anchor, Items::List(Vec::new()))?;
            }
            Event::MappingStart(style, anchor, _) => {
                let items = Items::Map {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                };
                self.start(mark, style, anchor, items)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let content = match open.items {
                        Items::List(items) => Content::List(items),
                        Items::Map { entries, .. } => Content::Map(entries),
                    };
                    let node = Node {
                        mark: open.mark,
                        content,
                    };
                    self.place(node, open.anchor, report)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn in_flow(&self) -> bool {
        self.open.last().is_some_and(|open| open.flow)
    }

    fn start(
        &mut self,
        mark: Mark,
        style: StructureStyle,
        anchor: usize,
        items: Items,
    ) -> Result<(), Refused> {
        if let Some(Open {
            items: Items::Map { key: None, .. },
            ..
        }) = self.open.last()
        {
            return Err((FindingCode::KeyNotText, mark, self.path()));
        }
        self.count(1, 1, mark)?;
        self.open.push(Open {
            mark,
            flow: style == StructureStyle::Flow,
            anchor,
            items,
        });
        Ok(())
    }

    fn count(&mut self, weight: usize, depth: usize, mark: Mark) -> Result<(), Refused> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT || self.open.len() + depth > MAX_DEPTH {
            return Err((FindingCode::TooComplex, mark, self.path()));
        }
        Ok(())
    }

    /// Puts a finished node where it belongs.
    fn place(
        &mut self,
        mut node: Node,
        anchor: usize,
        report: &mut Report<'_>,
    ) -> Result<(), Refused> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let path = self.path();
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map { entries, seen, key }) => match key.take() {
                None => {
                    let Content::Scalar { text, plain } = node.content else {
                        return Err((FindingCode::KeyNotText, node.mark, path));
                    };
                    if plain && text == "<<" {
                        return Err((FindingCode::MergeKey, node.mark, path));
                    }
                    *key = Some((text, node.mark));
                }
                Some((key, mark)) => {
                    if node.is_null() {
                        node.mark = mark;
                    }
                    if let Some(line) = seen.get(&key) {
                        let details = Details::detail(line.to_string());
                        report.add(FindingCode::DuplicateKey, mark, &path, details);
                    } else {
                        seen.insert(key.clone(), mark.line);
                        entries.push(Entry {
                            key,
                            mark,
                            value: node,
                        });
                    }
                }
            },
        }
        Ok(())
    }

    /// The full name of the key that is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.items {
                Items::List(items) => path.push_str(&format!("[{}]", items.len())),
                Items::Map {
                    key: Some((key, _)),
                    ..
                } => path = super::report::join(&path, &shorten(key)),
                Items::Map { key: None, .. } => {}
            }
        }
        path
    }
}
