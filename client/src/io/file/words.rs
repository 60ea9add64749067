//! What a parser says of a value, in the words of whoever writes the file.

/// What was expected, as the parser has it, and as it is written.
const EXPECTED: [(&str, &str); 9] = [
    ("expected u8", "expected a whole number from 0 to 255, such as 1"),
    ("expected u16", "expected a whole number from 0 to 65535, such as 1"),
    ("expected u32", "expected a whole number from 0 to 4294967295, such as 1000"),
    ("expected u64", "expected a whole number that is not negative, such as 1000"),
    ("expected f64", "expected a number such as 0.5"),
    ("expected a boolean", "expected true or false"),
    ("expected a string", "expected text in quotes"),
    ("expected a sequence", "expected a list such as [1, 2]"),
    ("expected an array of length 2", "expected a pair such as [1, 2]"),
];

/// What people look for that has another name.
const ELSEWHERE: [(&str, &str); 1] = [(
    "unknown field `policy`",
    "; a method is tied where it has `tie = {}`, hedged where it has `hedge = {}`, and both where it has both",
)];

/// The parser's message in plain words.
pub(super) fn plain(message: &str) -> String {
    let message = message.trim_end();
    let found = EXPECTED.iter().find_map(|(it, ours)| Some((message.strip_suffix(it)?, ours)));
    let mut told = match found {
        Some((before, ours)) => format!("{before}{ours}"),
        None => message.to_owned(),
    };
    let cures = ELSEWHERE.iter().filter(|(sought, _)| message.starts_with(sought));
    cures.for_each(|(_, cure)| told += cure);
    told
}
