//! Catalogue names and the names the model sees.
//!
//! Ollama's generic parser finds tool names by substring: a tool called `dir` swallows a hallucinated `list_directory`
//! ("Survive these" 2). So the catalogue keeps its names and the wire uses distinctive ones.

/// One tool's two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolWire {
    /// The name in the catalogue (DESIGN §6.5).
    pub catalogue: &'static str,
    /// The name on the wire.
    pub wire: &'static str,
}

/// Every tool's two names, checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolWires(Vec<ToolWire>);

/// Two names that cannot stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireProblem {
    /// Not `[a-z][a-z0-9_]*`, or longer than 64 characters.
    #[error("unusable wire name {0:?}")]
    Name(&'static str),
    /// The same catalogue name twice.
    #[error("{0:?} is there twice")]
    Twice(&'static str),
    /// One wire name is found inside another one.
    #[error("{inner:?} is a part of {outer:?}")]
    Contained {
        /// The shorter one.
        inner: &'static str,
        /// The longer one.
        outer: &'static str,
    },
}

impl ToolWires {
    /// Checks that no wire name can be mistaken for another one.
    pub fn new(table: &[ToolWire]) -> Result<Self, WireProblem> {
        for (index, tool) in table.iter().enumerate() {
            if !is_wire_name(tool.wire) {
                return Err(WireProblem::Name(tool.wire));
            }
            for other in &table[index + 1..] {
                if tool.catalogue == other.catalogue {
                    return Err(WireProblem::Twice(tool.catalogue));
                }
                for (inner, outer) in [(tool.wire, other.wire), (other.wire, tool.wire)] {
                    if outer.contains(inner) {
                        return Err(WireProblem::Contained { inner, outer });
                    }
                }
            }
        }
        Ok(Self(table.to_vec()))
    }

    /// The wire name of a catalogue name.
    pub fn wire_of(&self, catalogue: &str) -> Option<&'static str> {
        self.0
            .iter()
            .find(|tool| tool.catalogue == catalogue)
            .map(|tool| tool.wire)
    }

    /// The catalogue name of what a model wrote: its wire name, or exactly its catalogue name.
    pub fn catalogue_of(&self, written: &str) -> Option<&'static str> {
        let by = |name: fn(&ToolWire) -> &'static str| {
            self.0
                .iter()
                .find(|tool| name(tool) == written)
                .map(|tool| tool.catalogue)
        };
        by(|tool| tool.wire).or_else(|| by(|tool| tool.catalogue))
    }

    /// The wire names, to answer an unknown tool with ("Survive these" 4).
    pub fn wire_names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|tool| tool.wire)
    }
}

fn is_wire_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tool(catalogue: &'static str, wire: &'static str) -> ToolWire {
        ToolWire { catalogue, wire }
    }

    #[test]
    fn survive_2_a_wire_name_is_never_part_of_another() {
        let swallowed = [tool("dir", "dir"), tool("list", "list_directory")];
        assert_eq!(
            ToolWires::new(&swallowed),
            Err(WireProblem::Contained {
                inner: "dir",
                outer: "list_directory"
            })
        );
        let wires = ToolWires::new(&[
            tool("dir", "manage_directory"),
            tool("file_read", "file_read"),
        ])
        .unwrap();
        assert_eq!(wires.catalogue_of("manage_directory"), Some("dir"));
        assert_eq!(wires.catalogue_of("dir"), Some("dir"));
        assert_eq!(wires.catalogue_of("list_directory"), None);
        assert_eq!(wires.wire_of("dir"), Some("manage_directory"));
    }

    #[test]
    fn unusable_tables_are_refused() {
        assert_eq!(
            ToolWires::new(&[tool("a", "Über")]),
            Err(WireProblem::Name("Über"))
        );
        assert_eq!(
            ToolWires::new(&[tool("a", "alpha"), tool("a", "beta")]),
            Err(WireProblem::Twice("a"))
        );
    }
}
