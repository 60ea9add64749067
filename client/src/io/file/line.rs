//! Where a setting stands in a file.

use toml::de::{DeTable, DeValue};

/// A step on the way to a setting: into a table, or into a list.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// The line, from 1, on which the setting at the end of `way` stands; if it is not there, what is
/// nearest to it on the way.
pub(super) fn line_of(text: &str, way: &[Step<'_>]) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let mut at = 0;
    let mut table = Some(root.get_ref());
    let mut value: Option<&DeValue<'_>> = None;
    for step in way {
        let next = match (step, table, value) {
            (Step::Key(key), Some(table), _) => {
                let found = table.iter().find(|(name, _)| name.get_ref() == key);
                // A table's own span is that of its head; a value's name stands before it.
                found.map(|(name, value)| (name.span().start, value))
            }
            (Step::Item(n), _, Some(DeValue::Array(items))) => {
                items.get(*n).map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some((start, next)) = next else { break };
        at = start;
        value = Some(next.get_ref());
        table = value.and_then(DeValue::as_table);
    }
    line_at(text, at)
}

/// The line, from 1, of the byte at that place.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Item, Key};

    const TEXT: &str = "\
[budget]
burst = 1

[[method]]
id = 1
hedge = { percentile = 0.5 }

[[method]]
id = 2
[method.hedge]
max = \"1s\"
min = \"2s\"
";

    #[test]
    fn a_setting_is_found_however_its_tables_are_written() {
        assert_eq!(line_of(TEXT, &[Key("budget"), Key("burst")]), 2);
        assert_eq!(line_of(TEXT, &[Key("method"), Item(0), Key("hedge"), Key("percentile")]), 6);
        assert_eq!(line_of(TEXT, &[Key("method"), Item(1), Key("hedge"), Key("min")]), 12);
    }

    #[test]
    fn what_is_not_there_is_found_as_near_as_can_be() {
        assert_eq!(line_of(TEXT, &[Key("method"), Item(1), Key("tie"), Key("stagger")]), 8);
        assert_eq!(line_of(TEXT, &[Key("shadow")]), 1);
    }
}
